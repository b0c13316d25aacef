package stockade.open_test

import data.stockade.open

# A caller with uid 1000 opens a session on the directory that it is in.
base := {
	"request": {
		"op": "host.session.open",
		"principal": {"uid": 1000, "gid": 1000},
		"facade": "http",
		"open": {"target": {"local": {"mounts": [{"host_path": "/home/alice/project", "guest_path": "/workspace", "mode": "rw"}]}}},
	},
	"facts": {"sources": {"/home/alice/project": {"resolved": "/home/alice/project", "kind": "dir", "dev": 1, "ino": 2, "owner_uid": 1000, "mode": 493}}},
	"ceiling": {
		"roots": ["host", "dir", "paths"],
		"mount_roots": ["/"],
		"mount_denied": ["/proc", "/sys", "/dev", "/run", "/boot"],
		"read_write": ["/"],
		"uids": [1, 65534],
		"memory_bytes": 8589934592,
		"scratch_bytes": 8589934592,
		"mounts": 64,
		"ttl_ns": 86400000000000,
		"timeout_ns": 21600000000000,
	},
	"now_ns": 1700000000000000000,
}

# The hermetic build of a source tree that belongs to somebody else.
hermetic := json.patch(base, [
	{"op": "add", "path": "/request/open/profile", "value": "hermetic"},
	{"op": "replace", "path": "/request/open/target/local", "value": {
		"root": {"paths": {"paths": ["/usr/lib"]}},
		"mounts": [{"host_path": "/srv/source", "guest_path": "/src", "mode": "ro"}],
	}},
	{"op": "replace", "path": "/facts/sources", "value": {
		"/usr/lib": {"resolved": "/usr/lib", "kind": "dir", "dev": 1, "ino": 3, "owner_uid": 0, "mode": 493},
		"/srv/source": {"resolved": "/srv/source", "kind": "dir", "dev": 1, "ino": 4, "owner_uid": 33, "mode": 493},
	}},
])

# The base with some values replaced or added.
changed(document, changes) := json.patch(document, [{"op": "add", "path": path, "value": value} | some path, value in changes])

local(changes) := changed(base, {concat("", ["/request/open/target/local", path]): value | some path, value in changes})

# The codes with which a request is denied; none when it is allowed.
codes(document) := {deny.code | some deny in decision.deny} if {
	decision := open.decision with input as document
}

granted(document) := decision.grant if {
	decision := open.decision with input as document
	decision.allow == true
}
