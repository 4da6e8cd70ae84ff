"""TL407: gradients of whole embedding tables, of which a step uses few rows."""

from __future__ import annotations

from tracelab.findings.candidates import Candidate
from tracelab.findings.candidates_of_work import candidates_of_work
from tracelab.findings.context import Context
from tracelab.findings.remedy import Instead
from tracelab.findings.rule import Rule
from tracelab.simulate.arithmetic import left_of_table_gradients

_FIX = Instead(
    "Pass `sparse=True` to `nn.Embedding`, and update that table with `torch.optim.SparseAdam`, or "
    "with `torch.optim.SGD` or `Adagrad`, which take sparse gradients, too; all other parameters "
    "keep their optimizer. Moments and weights of a row change only in steps that use the row. "
    "Weight decay and `clip_grad_norm_` take no sparse gradients.",
    short="Pass `sparse=True` to `nn.Embedding`, and update its table with "
    "`torch.optim.SparseAdam`, other parameters as before.",
)


def find(context: Context) -> list[Candidate]:
    """What the window does with whole tables: fill, add and update them."""
    left = left_of_table_gradients(context.timeline)[:, 1]
    return candidates_of_work(
        context,
        left < 1,
        title="Each step goes through whole embedding tables, of which it uses few rows",
        fix=_FIX,
        cause="table_gradients",
        edit="sparse-gradients",
        most_saved=1 - left,
    )


RULE = Rule(
    id="TL407",
    name="gradients of whole embedding tables",
    matters="The gradient of `nn.Embedding` is as large as its table, unless it is sparse. Each "
    "backward pass fills it with zeros, for each use of the table, and adds these gradients. An "
    "optimizer such as Adam then reads and writes all rows, and their moments. With millions of "
    "rows, of which a batch uses thousands, that is most of a step.",
    decides="It compares the time in which `aten::embedding_dense_backward` fills gradients with "
    "the time in which it sums up the rows that were used, and is silent unless the fill takes "
    "longer: so it does for the vocabularies of language models. Part of the optimizer's time "
    "belongs to the tables: 3.6 (SGD), 10 (fused Adam) or 22 times (other optimizers) that of a "
    "fill, as measured on an H100. Sums in the backward pass count as well. It is silent if they "
    "say that another layer has the same weight, and if sparse gradients save less than 2 % of "
    "the time. The GPU is busy in this time, not idle.",
    before="self.items = nn.Embedding(12_000_000, 64)\noptimizer = Adam(model.parameters())",
    after="self.items = nn.Embedding(12_000_000, 64, sparse=True)\n"
    "optimizers = Adam(others), SparseAdam(model.items.parameters())",
    find=find,
)
