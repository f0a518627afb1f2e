"""How does a batch system get a job of ours, and what does it say of it afterwards?"""
