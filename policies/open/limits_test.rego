package stockade.open_test

import data.stockade.open

# R086
test_the_profile_has_ceilings if granted(base).ceilings.memory_bytes == 1073741824

test_the_ceiling_bounds_the_profile if {
	granted(changed(base, {"/ceiling/memory_bytes": 1000})).ceilings.memory_bytes == 1000
}

# C17: more than the profile's maximum, or the ceiling, is clamped and said so.
test_asked_for_more_the_maximum_is_granted if {
	asked := {"memory_bytes": 99999999999, "cpu_millis": 99999, "pids": 99999}
	grant := granted(changed(base, {"/request/open/limits": asked, "/ceiling/cpu_millis": 64000, "/ceiling/pids": 32768}))
	object.filter(grant.ceilings, object.keys(asked)) == {"memory_bytes": 4294967296, "cpu_millis": 4000, "pids": 1024}
}

test_hermetic_has_a_maximum_of_its_own if {
	asked := {"memory_bytes": 99999999999, "cpu_millis": 99999, "pids": 99999}
	document := json.patch(hermetic, [
		{"op": "add", "path": "/request/open/limits", "value": asked},
		{"op": "add", "path": "/ceiling/memory_bytes", "value": 68719476736},
	])
	object.filter(granted(document).ceilings, object.keys(asked)) == {"memory_bytes": 8589934592, "cpu_millis": 16000, "pids": 4096}
}

test_asked_for_more_the_ceiling_is_granted if {
	document := changed(base, {"/request/open/limits": {"memory_bytes": 99999999999}, "/ceiling/memory_bytes": 2147483648})
	granted(document).ceilings.memory_bytes == 2147483648
	decision := open.decision with input as document
	count(decision.warn) == 1
}

test_asked_for_less_nothing_warns if {
	decision := open.decision with input as changed(base, {"/request/open/limits": {"memory_bytes": 1000000}})
	count(decision.warn) == 0
}

test_the_ttl_is_bounded if {
	granted(base).ttl_ns == 3600000000000
	granted(changed(base, {"/request/open/session_ttl_ns": 999999999999999})).ttl_ns == 86400000000000
	granted(changed(base, {"/ceiling/ttl_ns": 60000000000})).ttl_ns == 60000000000
}

test_timeouts_are_bounded if {
	grant := granted(changed(base, {"/ceiling/timeout_ns": 1000}))
	grant.exec.max_timeout_ns == 1000
	grant.exec.default_timeout_ns == 1000
}

test_scratch_is_cut_to_the_ceiling if {
	grant := granted(changed(base, {"/ceiling/scratch_bytes": 1000}))
	{part.bytes | some part in grant.scratch} == {500}
}

# R086: overlays and scratch share one room.
test_scratch_takes_what_overlays_leave if {
	overlay := local({"/mounts/0/mode": "overlay", "/mounts/0/bytes": 600, "/mounts/0/inodes": 100})
	grant := granted(changed(overlay, {"/ceiling/scratch_bytes": 1000}))
	{part.bytes | some part in grant.scratch} == {200}
	grant.mounts[0].bytes == 600
	disk := granted(changed(overlay, {"/request/open/limits": {"disk_bytes": 700, "disk_inodes": 110}}))
	{[part.bytes, part.inodes] | some part in disk.scratch} == {[50, 5]}
	[disk.ceilings.disk_bytes, disk.ceilings.disk_inodes] == [700, 110]
}

# The engine refuses what does not fit, and names the numbers.
test_an_overlay_is_never_cut if {
	grant := granted(changed(local({"/mounts/0/mode": "overlay"}), {"/ceiling/scratch_bytes": 1000}))
	grant.mounts[0].bytes == 536870912
	{part.bytes | some part in grant.scratch} == {1}
}

# R086: cpu, memory, pids, io, wall and disk; what the profile does not bound is bounded by asking.
test_ceilings_that_a_session_need_not_have if {
	asked := {"cpu_time_ns": 5, "io_bytes_per_second": 6, "disk_bytes": 7, "disk_inodes": 8}
	object.filter(granted(changed(base, {"/request/open/limits": asked})).ceilings, object.keys(asked)) == asked
	not granted(base).ceilings.cpu_time_ns
	granted(changed(base, {"/request/open/limits": {"cpu_time_ns": 5}, "/ceiling/cpu_time_ns": 4})).ceilings.cpu_time_ns == 4
}

test_nobody_takes_more_than_a_share if {
	granted(changed(base, {"/request/open/limits": {"cpu_weight": 10000}})).ceilings.cpu_weight == 100
	granted(changed(base, {"/request/open/limits": {"files": 99999}})).ceilings.files == 16384
}

test_scratch_is_whole_below_the_ceiling if {
	{part.bytes | some part in granted(base).scratch} == {268435456}
}

# R021: agents think and wait for people, so a workspace has no idle time of its own.
test_a_workspace_may_be_idle_until_it_asks_otherwise if {
	granted(base).idle_timeout_ns == 0
	granted(changed(base, {"/request/open/idle_timeout_ns": 999999999999999})).idle_timeout_ns == 86400000000000
}

test_the_ceiling_bounds_the_idle_time if {
	grant := granted(changed(base, {"/request/open/idle_timeout_ns": 1000, "/ceiling/idle_ns": 60000000000}))
	grant.idle_timeout_ns == 60000000000
}

test_a_forgotten_build_ends if {
	granted(hermetic).idle_timeout_ns == 1800000000000
	granted(changed(hermetic, {"/ceiling/idle_ns": 1000})).idle_timeout_ns == 1000
}

test_a_profile_without_idle_time_sets_none if {
	grant := granted(base) with data.profiles.workspace as json.remove(data.profiles.workspace, ["/idle"])
	grant.idle_timeout_ns == 0
}

# R052
test_executions_wait_for_their_turn if {
	granted(base).ceilings.queued == 64
	not granted(base).exec.queue
}

test_the_caller_chooses_what_a_restart_means if granted(base).on_restart == ""

test_a_profile_can_end_its_sessions_with_the_supervisor if {
	decision := open.decision with input as changed(base, {"/request/open/on_restart": "adopt"})
		with data.profiles.workspace.on_restart as "terminate"
	decision.grant.on_restart == "terminate"
	count(decision.warn) == 1
}

# A share is taken from others: without a word of the profile nobody has more than the usual one.
test_a_profile_without_a_share_gives_the_usual_one if {
	grant := granted(changed(base, {"/request/open/limits": {"cpu_weight": 10000}})) with data.profiles.workspace as json.remove(data.profiles.workspace, ["/ceilings/max/cpu_weight"])
	grant.ceilings.cpu_weight == 100
	less := granted(changed(base, {"/request/open/limits": {"cpu_weight": 50}})) with data.profiles.workspace as json.remove(data.profiles.workspace, ["/ceilings/max/cpu_weight"])
	less.ceilings.cpu_weight == 50
}
