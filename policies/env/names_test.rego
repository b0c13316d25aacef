package stockade.env_test

import data.stockade.env

test_loader_variables if {
	stockade.named(["LD_PRELOAD", "GCONV_PATH", "GOLD_X", "PATH"], env.denied) == {"LD_PRELOAD", "GCONV_PATH"}
}
