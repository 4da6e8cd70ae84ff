"""Files to write: pictures, pages, traces with tracks."""
