package stockade.open_test

import data.stockade.open

# R083: host roots, inside prefixes, modes, count.
mount(changes) := local({concat("", ["/mounts/0", path]): value | some path, value in changes})

source(changes) := changed(base, {concat("", ["/facts/sources/~1home~1alice~1project", path]): value | some path, value in changes})

test_an_own_directory_is_mounted_rw if {
	protected := open.protected with input as base
	granted(base).mounts == [{"host_path": "/home/alice/project", "guest_path": "/workspace", "mode": "rw", "class": "workspace", "protect": protected}]
	count(protected) > 10
}

test_no_mounts_at_all if granted(local({"/mounts": []})).mounts == []

test_a_foreign_directory_is_denied if {
	codes(source({"/owner_uid": 33})) == {"mount_host_path_not_allowed"}
}

test_a_foreign_directory_is_no_input_of_a_workspace if {
	codes(changed(source({"/owner_uid": 33}), {"/request/open/target/local/mounts/0/mode": "ro"})) == {"mount_host_path_not_allowed"}
}

test_the_superuser_reads_anybodys_directory if {
	document := changed(source({"/owner_uid": 33}), {"/request/principal/uid": 0, "/request/open/target/local/mounts/0/mode": "ro"})
	granted(document)
}

test_the_superuser_writes_its_own_only if {
	codes(changed(source({"/owner_uid": 33}), {"/request/principal/uid": 0})) == {"mount_mode_not_allowed"}
}

test_a_link_into_etc_is_denied if "mount_host_path_not_allowed" in codes(source({"/resolved": "/etc"}))

test_a_name_that_begins_like_a_denied_one_is_not_denied if granted(source({"/resolved": "/etcetera"}))

test_a_parent_of_a_denied_directory_is_denied if {
	every dir in ["/", "/var", "/root"] {
		"mount_host_path_not_allowed" in codes(changed(source({"/resolved": dir, "/owner_uid": 0}), {"/request/principal/uid": 0}))
	}
}

test_directories_of_credentials_are_denied if {
	"mount_host_path_not_allowed" in codes(source({"/resolved": "/home/alice/.ssh"}))
}

test_files_of_credentials_are_denied if {
	every name in [".netrc", ".git-credentials", ".config/gh"] {
		"mount_host_path_not_allowed" in codes(source({"/resolved": concat("/", ["/home/alice", name])}))
	}
}

test_a_whole_home_is_denied if {
	every dir in ["/home", "/home/alice"] {
		"mount_host_path_not_allowed" in codes(source({"/resolved": dir}))
	}
	granted(source({"/resolved": "/homestead"}))
	granted(source({"/resolved": "/home/alice/p"}))
}

test_the_hosts_programs_are_not_written if {
	every dir in ["/usr", "/usr/bin", "/usr/local", "/usr/local/bin/x", "/lib64"] {
		root := changed(source({"/resolved": dir, "/owner_uid": 0}), {"/request/principal/uid": 0})
		codes(root) == {"mount_mode_not_allowed"}
		granted(changed(root, {"/request/open/target/local/mounts/0/mode": "ro"}))
		codes(changed(root, {"/ceiling/read_write": ["/usr"]})) == {"mount_mode_not_allowed"}
	}
	granted(source({"/resolved": "/usr/src/app"}))
}

test_outside_the_mount_roots_is_denied if {
	codes(changed(base, {"/ceiling/mount_roots": ["/srv"]})) == {"mount_host_path_not_allowed"}
}

test_no_mount_roots_means_nothing if "mount_host_path_not_allowed" in codes(changed(base, {"/ceiling/mount_roots": []}))

test_absent_mount_roots_mean_any if granted(json.patch(base, [{"op": "remove", "path": "/ceiling/mount_roots"}]))

test_what_the_operator_denies_is_denied if {
	"mount_host_path_not_allowed" in codes(changed(base, {"/ceiling/mount_denied": ["/home/alice/project/secret"]}))
}

test_rw_where_the_operator_permits_reading_only_is_denied if {
	codes(changed(base, {"/ceiling/read_write": ["/srv"]})) == {"mount_mode_not_allowed"}
}

test_an_unresolved_source_is_denied if {
	codes(changed(base, {"/facts/sources": {"/home/alice/project": {"error": "mount_source"}}})) == {"mount_host_path_not_allowed"}
}

test_another_mode_is_denied if "mount_mode_not_allowed" in codes(mount({"/mode": "rwx"}))

test_a_hermetic_input_is_digested if {
	granted(hermetic).mounts == [{"host_path": "/srv/source", "guest_path": "/src", "mode": "ro", "class": "input"}]
}

test_a_hermetic_session_writes_no_host_directory if {
	document := changed(hermetic, {"/request/open/target/local/mounts/0/mode": "rw", "/facts/sources/~1srv~1source/owner_uid": 1000})
	codes(document) == {"mount_mode_not_allowed"}
}

test_places_of_the_system_are_no_mount_points if {
	every place in ["/etc", "/usr/bin", "/proc/1", "/sys", "/dev/shm", "/workspacex"] {
		codes(mount({"/guest_path": place})) == {"mount_guest_path_not_allowed"}
	}
}

test_scratch_is_not_mounted_over if {
	every place in ["/tmp", "/home/sandbox", "/home/sandbox/x", "/home"] {
		codes(mount({"/guest_path": place})) == {"mount_guest_path_not_allowed"}
	}
}

test_more_mounts_than_the_ceiling_are_denied if {
	"mount_limit_exceeded" in codes(changed(base, {"/ceiling/mounts": 0, "/request/open/target/local/mounts": [m | some _ in numbers; m := base.request.open.target.local.mounts[0]]}))
}

numbers := [1, 2]

test_an_own_directory_is_mounted_as_an_overlay if {
	some mounted in granted(mount({"/mode": "overlay"})).mounts
	mounted.mode == "overlay"
	mounted.bytes == 536870912
	mounted.inodes == 131072
	".git/hooks" in mounted.protect
}

test_the_room_of_an_overlay_is_asked_for if {
	some mounted in granted(mount({"/mode": "overlay", "/bytes": 1000, "/inodes": 99999999})).mounts
	mounted.bytes == 1000
	mounted.inodes == 1048576
}

test_what_may_not_be_written_is_no_overlay if {
	codes(source_of("overlay", {"/owner_uid": 33})) == {"mount_host_path_not_allowed"}
	codes(changed(source_of("overlay", {"/owner_uid": 33}), {"/request/principal/uid": 0})) == {"mount_mode_not_allowed"}
	codes(changed(mount({"/mode": "overlay"}), {"/ceiling/read_write": ["/srv"]})) == {"mount_mode_not_allowed"}
	codes(source_of("overlay", {"/kind": "file"})) == {"mount_mode_not_allowed"}
}

source_of(mode, changes) := changed(source(changes), {"/request/open/target/local/mounts/0/mode": mode})

test_what_is_only_read_protects_nothing if {
	some mounted in granted(mount({"/mode": "ro"})).mounts
	not mounted.protect
}

# Who asks for rw can be given an overlay, and rw nowhere else.
test_a_profile_can_make_overlays_of_what_is_written if {
	every mode in ["rw", "overlay"] {
		decision := open.decision with input as mount({"/mode": mode}) with data.profiles.workspace.mounts.rw_is as "overlay"
		some mounted in decision.grant.mounts
		mounted.mode == "overlay"
		mounted.bytes == 536870912
	}
	decision := open.decision with input as source({"/kind": "file"}) with data.profiles.workspace.mounts.rw_is as "overlay"
	{deny.code | some deny in decision.deny} == {"mount_mode_not_allowed"}
}

test_without_a_list_nothing_is_protected if {
	decision := open.decision with input as base
		with data.profiles.bare as json.remove(data.profiles.workspace, ["/mounts/protect"])
		with data.principals.uid as {"1000": {"profiles": ["bare"], "profile": "bare", "require_scope": []}}
	decision.grant.mounts[0].protect == set()
}

# R083: what holds the names of credentials is as good as what is called by them.
test_what_holds_credentials_is_denied if {
	every name in [".config", ".local", ".local/share", ".cargo", ".SSH", ".Config/GH", ".config/op/x", ".vault-token"] {
		"mount_host_path_not_allowed" in codes(source({"/resolved": concat("/", ["/home/alice", name])}))
	}
	granted(source({"/resolved": "/home/alice/.configure"}))
	granted(source({"/resolved": "/home/alice/.cargo/registry"}))
}

# Each proper part of a name of more than one component is one that holds it.
test_holders_are_complete if {
	every name in data.host_paths.denied_names {
		parts := split(trim(name, "/"), "/")
		every n in numbers_below(count(parts)) {
			sprintf("/%s/", [concat("/", array.slice(parts, 0, n))]) in data.host_paths.holders
		}
	}
}

numbers_below(most) := {n | some n in [1, 2, 3, 4]; n < most}

test_homes_elsewhere_are_homes if {
	every dir in ["/var/home/alice", "/export/home/alice", "/var/home"] {
		"mount_host_path_not_allowed" in codes(source({"/resolved": dir}))
	}
	granted(source({"/resolved": "/var/home/alice/project"}))
}

# What is run by itself on the host is not written from inside.
test_what_starts_by_itself_is_not_written if {
	every name in [".bashrc", ".profile", ".config/autostart/x.desktop", ".local/bin", ".gitconfig"] {
		codes(source({"/resolved": concat("/", ["/home/alice", name])})) == {"mount_mode_not_allowed"}
		granted(changed(source({"/resolved": concat("/", ["/home/alice", name])}), {"/request/open/target/local/mounts/0/mode": "ro"}))
	}
}

test_a_superusers_hosts_state_is_denied if {
	every dir in ["/tmp", "/var/backups", "/var/spool", "/var/snap/lxd/common", "/var/lib", "/swapfile", "/tmp/.X11-unix"] {
		"mount_host_path_not_allowed" in codes(changed(source({"/resolved": dir, "/owner_uid": 0}), {"/request/principal/uid": 0, "/request/open/target/local/mounts/0/mode": "ro"}))
	}
	granted(source({"/resolved": "/tmp/build"}))
}

# R083: a profile that mounts from certain places, by what a path led to.
test_a_profile_mounts_from_its_places if {
	every resolved, codes in {"/srv/work/x": set(), "/srv/work": set(), "/srv/workx": {"mount_host_path_not_allowed"}, "/home/alice/project": {"mount_host_path_not_allowed"}} {
		decision := open.decision with input as source({"/resolved": resolved}) with data.profiles.workspace.mounts.host_roots as ["/srv/work/"]
		{deny.code | some deny in decision.deny} == codes
	}
}
