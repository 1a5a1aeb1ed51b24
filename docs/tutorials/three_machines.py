# %% [markdown]
# # three_machines
