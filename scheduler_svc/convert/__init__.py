"""Messages to core events and core effects to messages; nothing is decided here."""
