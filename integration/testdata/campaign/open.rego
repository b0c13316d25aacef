# What a campaign of kills asks, and no more: a policy that loads in no time, because each daemon of a thousand loads it.
package stockade.open

default decision := {"allow": false, "deny": [{"code": "profile_not_allowed", "subject": "profile", "message": "only workspace is granted"}]}

decision := {"allow": true, "deny": [], "warn": [], "grant": {
	"profile": "workspace",
	"root": "host",
	"mounts": [mount |
		some asked in object.get(local, "mounts", [])
		mount := object.union(asked, object.get(space, asked.mode, {}))
	],
	"scratch": [{"guest_path": "/tmp", "bytes": 67108864, "inodes": 65536}],
	"identity": {"uid": 1000, "gid": 1000},
	"ceilings": {"memory_bytes": 1073741824, "cpu_millis": 2000, "pids": 128, "files": 1024, "output_bytes": 67108864, "executions": 64, "queued": 64},
	"seccomp": "default",
	"network": {"mode": object.get(local, "network_mode", "none")},
	"env": {"set": {"HOME": "/tmp"}, "max": 256},
	"exec": {"max_timeout_ns": 3600000000000, "default_timeout_ns": 600000000000, "signals": ["INT", "TERM", "KILL"]},
	"workdir": "/",
	"ttl_ns": object.get(input.request.open, "session_ttl_ns", 14400000000000),
	"on_restart": "adopt",
}} if input.request.open.profile == "workspace"

local := input.request.open.target.local

space := {"overlay": {"bytes": 67108864, "inodes": 8192}}
