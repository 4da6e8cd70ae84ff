import pytest
from rich.cells import cell_len

from tracelab.render.words import (
    bare_name,
    duration_text,
    paragraph,
    share_text,
    shorten,
    shorten_middle,
    ticks,
    time_unit,
    wrap,
)


@pytest.mark.parametrize(
    ("name", "short"),
    [
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>, "
            "std::array<char*, 3ul> >(int, at::native::AddFunctor<float>, std::array<char*, 3ul>)",
            "elementwise add",
        ),
        (
            "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl<at::F>(at::"
            "TensorIteratorBase&, at::F const&)::{lambda(int)#1}>(int, at::{lambda(int)#1})",
            "elementwise",
        ),
        ("void (anonymous namespace)::softmax_warp_forward<float>(float*)", "softmax_warp_forward"),
        ("ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", "ncclDevKernel_Generic"),
        ("std::enable_if<!(false), void>::type internal::gemvx::kernel<int>(int)", "gemvx"),
        ("void dpsk::ep::internode::combine<__nv_bfloat16>(int4*)", "combine"),
        ("void cut::off::kernel<4, at::native::AddFun", "off"),
        ("nvjet_tst_128x256_64x4_2x1_v_bz_TNN", "nvjet 128x256"),
        ("cudaStreamSynchronize", "cudaStreamSynchronize"),
        ("Memcpy HtoD (Pageable -> Device)", "copy H2D pageable"),
        ("Memset (Device)", "memset"),
        ("two words", "two words"),
        ("void f<&T::operator-> >(int)", "f"),
        ("<>()", "<>()"),
        ("", ""),
    ],
)
def test_a_long_name_becomes_the_functions_own_name(name, short):
    assert bare_name(name) == short


def test_a_name_without_an_end_is_cut():
    assert bare_name("Cijk_" * 60) == ("Cijk_" * 60)[:59] + "…"
    assert len(bare_name("x" * 300 + "<int>(int)")) == 60
    assert shorten("abcdef", 6) == "abcdef"
    assert shorten("abcdef", 4) == "abc…"


@pytest.mark.parametrize(
    ("length_ns", "unit"),
    [(0, "ns"), (999, "ns"), (1_000, "µs"), (999_999, "µs"), (1_000_000, "ms"), (10**9, "s")],
)
def test_the_unit_follows_from_the_length(length_ns, unit):
    assert time_unit(length_ns)[0] == unit


@pytest.mark.parametrize(
    ("length_ns", "at_most", "step_ns", "labels"),
    [
        (16_682_383, 12, 2_000_000, ["0", "2", "4", "6", "8", "10", "12", "14", "16"]),
        (1_222_000_000, 6, 500_000_000, ["0", "0.5", "1.0"]),
        (2_210_000, 4, 1_000_000, ["0", "1", "2"]),
        (1_250, 10, 200, ["0", "0.2", "0.4", "0.6", "0.8", "1.0", "1.2"]),
        (3, 12, 1, ["0", "1", "2", "3"]),
        (60_000_000_000, 6, 10_000_000_000, ["0", "10", "20", "30", "40", "50", "60"]),
    ],
)
def test_ticks_are_round_and_labelled_without_needless_digits(length_ns, at_most, step_ns, labels):
    at, found = ticks(length_ns, at_most)
    assert found == labels
    assert at.tolist() == [i * step_ns for i in range(len(labels))]


@pytest.mark.parametrize(
    ("start_ns", "length_ns", "labels"),
    [
        (812_300_000, 2_300_000, ["813", "814"]),
        (812_305_000, 20_000, ["812.31", "812.32"]),
        (1_512_300_000, 30_000_000, ["1,520", "1,540"]),
        (150_000_000_000, 30_000_000, ["150.00", "150.02"]),
        (0, 3_000, ["0", "2"]),
    ],
)
def test_ticks_of_a_part_keep_its_time(start_ns, length_ns, labels):
    at, found = ticks(length_ns, 2, start_ns)
    assert found == labels
    assert ((at >= start_ns) & (at <= start_ns + length_ns)).all()


@pytest.mark.parametrize(
    ("length_ns", "text"),
    [
        (0, "0 ns"),
        (17, "17 ns"),
        (1_234, "1.23 µs"),
        (12_345, "12.3 µs"),
        (123_456_789, "123 ms"),
        (2_000_000_000, "2.00 s"),
    ],
)
def test_a_duration_has_three_digits(length_ns, text):
    assert duration_text(length_ns) == text


@pytest.mark.parametrize(
    ("part", "text"),
    [(0, "0 %"), (1, "<1 %"), (10, "1 %"), (415, "42 %"), (999, ">99 %"), (1000, "100 %")],
)
def test_only_nothing_is_0_percent_and_only_everything_is_100(part, text):
    assert share_text(part, 1000) == text


class TestFitting:
    @pytest.mark.parametrize(
        ("text", "room", "shortened"),
        [
            ("abcdefghij", 10, "abcdefghij"),
            ("abcdefghij", 7, "abc…hij"),
            ("abcdefghij", 6, "abc…ij"),
            ("abcdefghij", 1, "…"),
            ("模型模型模型", 8, "模型…型"),
            ("", 5, ""),
        ],
    )
    def test_shorten_middle(self, text, room, shortened):
        assert shorten_middle(text, room) == shortened

    def test_wrap_keeps_a_number_with_its_unit(self):
        # GIVEN a sentence that would be cut before "ms", "%" and "0"
        text = "It was busy 98.8 % of 16.68 ms (and GPU 0 of 12.3 %)."
        # WHEN it is wrapped at any width
        # THEN no line begins with the second half of a pair
        for room in range(10, 60):
            lines = wrap(text, room)
            assert " ".join(lines) == text
            assert not [x for x in lines if x.startswith(("%", "ms", "0"))]
            assert all(cell_len(line) <= room for line in lines)

    def test_wrap_cuts_what_is_longer_than_a_line(self):
        assert wrap("a bbbbbbbb c", 5) == ["a", "bbbbb", "bbb c"]

    def test_wrap_of_nothing_is_nothing(self):
        assert wrap("", 10) == []

    def test_a_paragraph_that_is_cut_says_so_within_its_room(self):
        for room in range(7, 30):
            lines = paragraph("the host waits for the GPU in every step", room, 2)
            assert len(lines) <= 2
            assert all(cell_len(line) <= room for line in lines)
            assert (lines[-1][-1] == "…") == (room < 21)
