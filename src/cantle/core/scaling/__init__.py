"""When do machines come and go, by what the workflow needs?"""
