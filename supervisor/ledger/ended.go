package ledger

import "github.com/stockade-dev/stockade/supervisor/api"

// Ended returns every session that has ended and is in view, in the order in which they ended.
func (s *State) Ended() []api.Session {
	var list []api.Session
	for ses := range s.closed.upward() {
		list = append(list, ses.document())
	}
	return list
}
