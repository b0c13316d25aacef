package ledger

import "github.com/stockade-dev/stockade/supervisor/api"

// Ended returns every session that has ended and is in view, oldest first.
func (s *State) Ended() []api.Session { panic("bug: unwritten") }
