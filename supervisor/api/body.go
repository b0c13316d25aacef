package api

// SetParameters decodes body as the parameters of r.Op, which is canonical, and makes
// them part of the request. It returns the scope that the body declares, and leaves the
// principal alone.
func (r *Request) SetParameters(body []byte) (Scope, *Error) {
	set, ok := bodies[r.Op]
	if !ok {
		set = parametersOf(func(r *Request, p *Read) Scope { r.Read = p; return Scope{} })
	}
	return set(r, body)
}

// bodies are the operations whose parameters are not a [Read].
var bodies = map[Op]func(*Request, []byte) (Scope, *Error){
	OpSessionOpen:   parametersOf(func(r *Request, p *SessionOpen) Scope { r.Open = p; return p.Scope }),
	OpExec:          parametersOf(func(r *Request, p *Exec) Scope { r.Exec = p; return p.Scope }),
	OpSessionSignal: parametersOf(func(r *Request, p *SessionSignal) Scope { r.Signal = p; return p.Scope }),
	OpSessionClose:  parametersOf(func(r *Request, p *SessionClose) Scope { r.Close = p; return p.Scope }),
	OpBlobPut:       parametersOf(func(r *Request, p *BlobPut) Scope { r.Blob = p; return Scope{} }),
}

func parametersOf[T any](set func(*Request, *T) Scope) func(*Request, []byte) (Scope, *Error) {
	return func(r *Request, body []byte) (Scope, *Error) {
		p, err := Decode[T](body)
		if err != nil {
			return Scope{}, err
		}
		return set(r, &p), nil
	}
}
