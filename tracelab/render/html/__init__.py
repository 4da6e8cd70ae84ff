"""The page: a report as one HTML file, the only place that imports jinja2."""
