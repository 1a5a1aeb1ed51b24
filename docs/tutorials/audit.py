# %% [markdown]
# # audit
