package stockade.open_test

test_root_host_is_the_default if granted(base).root == "host"

test_root_host_may_be_named if granted(local({"/root": {"host": {}}})).root == "host"

test_an_unknown_kind_of_root_is_denied if "root_not_allowed" in codes(local({"/root": {"image": {}}}))

test_root_dir_of_a_readable_tree if {
	document := changed(local({"/root": {"dir": {"path": "/srv/root"}}}), {"/facts/sources/~1srv~1root": {"resolved": "/srv/root", "kind": "dir", "owner_uid": 0}})
	granted(document).root == "dir"
}

# R096: what counts is what the path led to.
test_root_dir_that_leads_to_secrets_is_denied if {
	document := changed(local({"/root": {"dir": {"path": "/srv/root"}}}), {"/facts/sources/~1srv~1root": {"resolved": "/etc/ssl/private", "kind": "dir", "owner_uid": 0}})
	codes(document) == {"root_not_allowed"}
}

test_root_paths_that_do_not_exist_are_denied if {
	document := changed(local({"/root": {"paths": {"paths": ["/opt/none"]}}}), {"/facts/sources/~1opt~1none": {"error": "mount_source"}})
	codes(document) == {"root_not_allowed"}
}

test_public_files_of_etc_may_be_root_paths if {
	document := changed(local({"/root": {"paths": {"paths": ["/etc/alternatives"]}}}), {"/facts/sources/~1etc~1alternatives": {"resolved": "/etc/alternatives", "kind": "dir", "owner_uid": 0}})
	granted(document).root == "paths"
}

test_a_hermetic_session_refuses_the_host if {
	codes(changed(hermetic, {"/request/open/target/local/root": {"host": {}}})) == {"hermetic_root"}
}

test_a_hermetic_session_needs_a_root if {
	codes(json.patch(hermetic, [{"op": "remove", "path": "/request/open/target/local/root"}])) == {"hermetic_root"}
}
