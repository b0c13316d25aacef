package file

// Sight is what a request is about to touch, by what its paths lead to at a moment. Policy judges it; what is
// done is held against the capabilities once more, on the object itself.
type Sight struct {
	Paths   []Seen `json:"paths"`
	Patched int64  `json:"patched,omitzero"` // files that a patch changes
}

// Seen is one path of a request.
type Seen struct {
	Path     string `json:"path"`                  // as asked
	Resolved string `json:"resolved"`              // after symbolic links; of what is missing, its directory's and its name
	Link     bool   `json:"through_link,omitzero"` // a symbolic link is on the way
	Write    bool   `json:"write,omitzero"`        // it is made, changed, moved or removed
}
