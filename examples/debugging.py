from meshrt import debug_client, proc_mesh
from my_actors import DebugeeActor

process_mesh = proc_mesh(hosts=4, gpus=4)
debugee_mesh = process_mesh.spawn("debugee", DebugeeActor).get()
res = debugee_mesh.to_debug.call()
debug_client().enter.call_one().get()  # optional: at a terminal the debugger opens by itself
print(res.get())
