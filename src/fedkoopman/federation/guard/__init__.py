"""The guard: updates are judged by the other sites before they count, and liars are set aside."""
