"""What does float32 cost?"""
