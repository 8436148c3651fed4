"""Conversation: list model, delegate, composer, chats list and store."""
