package stockade.principals_test

import data.stockade.principals

by(uid) := {"request": {"principal": {"uid": uid}}}

test_the_superuser_is_an_administrator if principals.administrator with input as by(0)

test_another_is_none if not principals.administrator with input as by(1000)

test_data_names_others if {
	principals.administrator with input as by(1000) with data.principals.administrators as [1000]
	not principals.administrator with input as by(0) with data.principals.administrators as [1000]
}

test_nobody_is_no_administrator if not principals.administrator with input as {}
