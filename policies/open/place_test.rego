package stockade.open_test

test_work_happens_in_the_first_mount if granted(base).workdir == "/workspace"

test_work_happens_at_home_without_mounts if granted(local({"/mounts": []})).workdir == "/home/sandbox"

test_a_working_directory_may_be_chosen if granted(local({"/workdir": "/srv/app"})).workdir == "/srv/app"

test_no_working_directory_in_proc if codes(local({"/workdir": "/proc/1/cwd"})) == {"workdir_not_allowed"}

test_a_host_name_may_be_chosen if granted(local({"/hostname": "builder"})).hostname == "builder"

test_a_fixed_host_name_may_not if {
	granted(hermetic).hostname == "hermetic"
	codes(changed(hermetic, {"/request/open/target/local/hostname": "builder"})) == {"hostname_not_allowed"}
}

# R027
test_background_processes_are_granted_on_request if {
	granted(base).exec.background == false
	granted(changed(base, {"/request/open/allow_background_processes": true})).exec.background == true
}

test_background_processes_are_not_hermetic if {
	codes(changed(hermetic, {"/request/open/allow_background_processes": true})) == {"background_not_allowed"}
}
