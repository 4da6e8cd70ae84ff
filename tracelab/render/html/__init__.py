"""The page: a report as one HTML file; nothing else imports jinja2."""
