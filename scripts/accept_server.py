"""accept_server.py: the table of the server's acceptance lines; each group is a module of its own.

A group holds functions `line_NAME`; scripts/accept finds them here, in the order of the table.
"""
import accept_server_deploy
import accept_server_faults
import accept_server_load
import accept_server_proxies

GROUPS = (accept_server_load, accept_server_faults, accept_server_deploy, accept_server_proxies)

for _group in GROUPS:
    for _name, _line in vars(_group).items():
        if _name.startswith("line_"):
            if _name in globals():
                raise ImportError(f"{_group.__name__}: {_name} is another group's, too")
            globals()[_name] = _line
