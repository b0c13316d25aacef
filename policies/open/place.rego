package stockade.open

import data.stockade.paths

# METADATA
# title: The working directory
# description: As asked; else where the first mount is, which is where the work is; else the home.
workdir := local.workdir if {
	local.workdir
} else := mounts[0].guest_path if {
	input.facts.sources[mounts[0].host_path].kind == "dir"
} else := profile.home

# METADATA
# title: The working directory is not in a file system of the kernel
# labels: {concern: place, requirement: R087}
deny contains {
	"code": "workdir_not_allowed",
	"subject": sprintf("workdir:%s", [local.workdir]),
	"message": "a session does not work in /proc, /sys or /dev",
} if {
	paths.inside(local.workdir, ["/proc/", "/sys/", "/dev/"])
}

# METADATA
# title: The working directory is where the profile works
# labels: {concern: workdir, requirement: R082}
deny contains {
	"code": "workdir_not_allowed",
	"subject": sprintf("workdir:%s", [workdir]),
	"message": sprintf("profile %s works below %s", [profile_name, concat(" ", profile.workdir_prefixes)]),
} if {
	profile.workdir_prefixes
	not in_workdirs(workdir)
}

in_workdirs(path) if {
	paths.inside(path, profile.workdir_prefixes)
	not paths.climbs(path)
}

# METADATA
# title: The host name
hostname := profile.hostname["default"] if {
	profile.hostname.fixed == true
} else := object.get(local, "hostname", profile.hostname["default"])

# METADATA
# title: A fixed host name cannot be chosen
# labels: {concern: place, requirement: R085}
deny contains {
	"code": "hostname_not_allowed",
	"subject": sprintf("hostname:%s", [local.hostname]),
	"message": sprintf("profile %s fixes it to %s", [profile_name, profile.hostname["default"]]),
} if {
	profile.hostname.fixed == true
	local.hostname != profile.hostname["default"]
}

# METADATA
# title: Processes that outlive their execution
# description: As asked, else as the profile has it, where it allows them at all.
background := object.get(input.request.open, "allow_background_processes", usual_background)

usual_background if {
	profile.background.allowed == true
	profile.background["default"] == true
} else := false

# METADATA
# title: Background processes are the profile's to allow
# labels: {concern: place, requirement: R112}
deny contains {
	"code": "background_not_allowed",
	"subject": "allow_background_processes",
	"message": sprintf("profile %s ends everything with the command that started it", [profile_name]),
} if {
	background == true
	profile.background.allowed == false
}
