package stockade.paths_test

import data.stockade.paths

# R095
test_inside_compares_components if {
	paths.inside("/a/b", ["/a/b/"])
	paths.inside("/a/b/c", ["/a/b/"])
	paths.inside("/a", ["/"])
	not paths.inside("/a/bc", ["/a/b/"])
	not paths.inside("/a", ["/a/b/"])
	not paths.inside("/a", [])
}

test_covers_is_the_other_way_round if {
	paths.covers("/a", ["/a/b/"])
	paths.covers("/", ["/a/b/"])
	not paths.covers("/a/bc", ["/a/b/"])
}

test_directories_from_elsewhere if paths.dirs(["/", "/a", "/b/"]) == {"/", "/a/", "/b/"}

test_climbing if {
	paths.climbs("a/../b")
	paths.climbs("..")
	not paths.climbs("a..b/c")
}
