"""The user's own trace with our findings in it, for Perfetto and chrome://tracing.

`tracks_of` makes what an analysis shows there, in whichever process the file was analyzed;
`write_with_tracks` copies the trace and puts it in.
"""

from tracelab.render.perfetto.tracks import Tracks, tracks_of
from tracelab.render.perfetto.write import write_with_tracks

__all__ = ["Tracks", "tracks_of", "write_with_tracks"]
