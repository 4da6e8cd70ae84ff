"""Timelines as pictures; nothing else imports matplotlib."""
