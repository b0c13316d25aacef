package rego

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	opa "github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/storage"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// Contract is the newest version of the contract between a policy and the supervisor. A
// bundle says in its data which one it is written for: {"stockade_contract": 3}. One that says
// nothing is of before contracts had numbers, and has the first.
//
//	1  open, exec, signal, blob and read are defined
//	2  every entry point whose row says 2 as well; each has a default, so that no request is without an answer; and a
//	   rule of its package that names what the input of this entry point never has does not compile
//	3  and those whose row says 3
//
// What a version asks for never changes. A new question of the supervisor is a row of
// entrypoints that a later version asks for; a bundle of an earlier one loads without it and denies what it would be asked.
const Contract = 3

// The versions from which on each entry point has a default, and an input of its own.
const (
	totalSince = 2
	typedSince = 2
)

// contractMember is where data says it.
const contractMember = "stockade_contract"

// ContractOf returns the version of the contract that a bundle is written for. One that this
// supervisor does not know is an error: what it asks for cannot be checked.
func ContractOf(b *Bundle) (int, error) {
	t := b.Data.Get(ast.InternedTerm(contractMember))
	if t == nil {
		return 1, nil
	}
	number, ok := t.Value.(ast.Number)
	if !ok {
		return 0, fmt.Errorf("data.%s: %v is not a number", contractMember, t.Value)
	}
	version, err := strconv.Atoi(string(number))
	if err != nil || version < 1 || version > Contract {
		return 0, fmt.Errorf("data.%s: contract %s is unknown; this supervisor knows 1 to %d", contractMember, number, Contract)
	}
	return version, nil
}

// keeps says in what a compiled bundle falls short of the contract that it is written for.
func (b *Bundle) keeps(c *ast.Compiler) error {
	version, err := ContractOf(b)
	if err != nil {
		return err
	}
	var errs []error
	for _, ep := range entrypoints {
		rules := c.GetRulesExact(dotted(ep.ref))
		switch {
		case len(rules) == 0 && ep.since <= version:
			errs = append(errs, fmt.Errorf("entry point %s is not defined; contract %d asks for it", ep.ref, version))
		case len(rules) > 0 && version >= totalSince && !slices.ContainsFunc(rules, func(r *ast.Rule) bool { return r.Default }):
			errs = append(errs, fmt.Errorf("entry point %s has no default; contract %d asks for one", ep.ref, version))
		}
	}
	return errors.Join(errs...)
}

// Question is an entry point, for whoever reads about it.
type Question struct {
	Entrypoint string   `json:"entrypoint"`
	Since      int      `json:"since"` // version of the contract that asks for it; above [Contract], nothing asks it yet
	Operations []api.Op `json:"operations"`
	About      []string `json:"about,omitempty"` // what the input holds beside request, ceiling and now_ns
	Grants     bool     `json:"grants,omitzero"` // the answer holds a grant
	Limits     bool     `json:"limits,omitzero"` // the answer may hold limits and obligations
	Waits      bool     `json:"waits,omitzero"`  // the answer may require an approval
}

// Questions are the entry points, in the order of their table.
func Questions() []Question {
	var list []Question
	for _, ep := range entrypoints {
		q := Question{Entrypoint: ep.ref, Since: ep.since, About: ep.about, Grants: ep.grants, Limits: ep.limits, Waits: ep.waits}
		for op, ref := range ops {
			if ref == ep.ref {
				q.Operations = append(q.Operations, op)
			}
		}
		slices.Sort(q.Operations)
		list = append(list, q)
	}
	return list
}

// Faults is what a policy finds wrong with its own data: a set of sentences, if it defines one. It is asked
// once, without input, when the policy is loaded; a policy that finds something does not load.
const Faults = "data.stockade.faults"

// faultless asks a compiled policy what is wrong with its data.
func faultless(c *ast.Compiler, store storage.Store, txn storage.Transaction) error {
	if len(c.GetRules(dotted(Faults))) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), faultsLimit)
	defer cancel()
	rs, err := opa.New(
		opa.Query(Faults), opa.Compiler(c), opa.Store(store), opa.Transaction(txn), opa.Capabilities(capabilities()), opa.StrictBuiltinErrors(true),
	).Eval(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", Faults, err)
	}
	if len(rs) != 1 || len(rs[0].Expressions) != 1 {
		return fmt.Errorf("%s is undefined", Faults)
	}
	list, ok := rs[0].Expressions[0].Value.([]any)
	if !ok {
		return fmt.Errorf("%s is no set of sentences", Faults)
	}
	var errs []error
	for _, fault := range list {
		errs = append(errs, fmt.Errorf("data: %v", fault))
	}
	return errors.Join(errs...)
}

// faultsLimit is how long a policy may look through its data.
const faultsLimit = 10 * time.Second
