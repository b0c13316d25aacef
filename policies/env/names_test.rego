package stockade.env_test

import data.stockade.env

test_loader_variables if {
	env.denied("LD_PRELOAD")
	env.denied("GCONV_PATH")
	not env.denied("GOLD_X")
	not env.denied("PATH")
}
