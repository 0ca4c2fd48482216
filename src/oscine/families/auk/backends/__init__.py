"""What runs AuK's transformer and decoder besides themselves: compiled code and captured graphs."""
