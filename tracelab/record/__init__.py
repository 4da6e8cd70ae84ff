"""Record a program; nothing else imports torch."""
