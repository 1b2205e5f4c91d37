package tidy

import (
	"go/ast"
	"testing"
)

// notExecuted lists the errors that say that a group was certainly not
// executed, and the functions that make or return such errors. The key is the
// package that defines them.
var notExecuted = map[string]map[string]bool{
	"cluster/outcome": {
		"NotExecuted": true, "NewNotExecuted": true, "Decode": true, "ErrNoLeader": true, "ErrClosed": true,
		"ErrRefused": true, "ErrFeature": true, "ErrBehind": true, "ErrRemoved": true,
		"ErrCrowded": true,
	},
	"cluster": {
		"readFailed": true, "errNotLed": true, "errChanging": true, "errUnconfirmed": true, "errMoved": true,
		"errUnasked": true, "unreached": true,
	},
}

// mayClaim lists the functions that may use the names of notExecuted, each with
// the reason why the claim is true. Before you add a function, consider what
// its caller has already done, and what a node that no longer answers may still
// do.
var mayClaim = map[string]string{
	"cluster/errors.go:":                        "defines them",
	"cluster/outcome/errors.go:":                "defines them",
	"cluster/outcome/outcome.go:":               "defines them",
	"cluster/outcome/outcome.go:NewNotExecuted": "only its callers claim",
	"cluster/outcome/outcome.go:Decode":         "the other node has made the claim",
	"cluster/outcome/outcome.go:Retryable":      "only compares",
	"cluster/admin.go:failure":                  "the other node has made the claim",
	"cluster/errors.go:readFailed":              "a read has no effect",
	"cluster/session.go:endedBy":                "the log ran an empty group in place of this one",
	"cluster/session.go:Do":                     "a read has no effect",
	"cluster/session.go:read":                   "a read has no effect",
	"cluster/session.go:readHere":               "a read has no effect",
	"cluster/forwarder.go:write":                "the group was never sent",
	"cluster/forwarder.go:sweep":                "groups that were never sent, and reads",
	"cluster/forwarder.go:close":                "groups that were never sent, and reads",
	"cluster/forwarder.go:expel":                "groups that were never sent, and reads",
	"cluster/forwarder.go:readmit":              "only compares",
	"cluster/link.go:answer":                    "a read has no effect",
	"cluster/script_dryrun.go:pieceRead":        "a read has no effect; inPieces says unknown after another piece",
	"cluster/script_dryrun.go:scriptAsRead":     "a read has no effect; inPieces says unknown after another piece",
	"cluster/script_dryrun.go:sendAfterDryRun":  "a dry run is a read, and the group that it is for was not run",
	"cluster/leader.go:Ready":                   "it only waits",
	"cluster/admin.go:askLeader":                "the request was never sent",
	"cluster/errors.go:unreached":               "only its callers claim",
	"cluster/peers.go:askContext":               "the request was never sent",
	"cluster/member_admit.go:committedMembers":  "it only asks, before a change",
	"cluster/member_admit.go:admit":             "nothing was proposed",
	"cluster/member_change.go:lock":             "the change has not begun",
	"cluster/member_change.go:changeError":      "raft did not append the change",
	"cluster/member_remove.go:remove":           "nothing was proposed",
	"cluster/member_remove.go:removeOther":      "nothing was proposed",
	"cluster/member_remove.go:checkRemoval":     "it only asks, before a change",
	"cluster/transfer.go:awaitLeadership":       "it only waits",
	"cluster/transfer.go:transferTo":            "the target was not asked to campaign",
	"cluster/transfer.go:electionError":         "no connection was made that could have carried the request",
	"cluster/node.go:Snapshot":                  "raft does not run yet",
	"resp/executor.go:outcome":                  "only compares",
	"resp/users.go:bootstrapUsers":              "only compares",
	"test/sim/client.go:send":                   "only compares",
}

// TestOutcomes_AreClaimedWhereTheyAreKnown finds code that claims "not
// executed" and is not listed in mayClaim.
func TestOutcomes_AreClaimedWhereTheyAreKnown(t *testing.T) {
	used := map[string]bool{}
	for _, s := range sources(t) {
		if s.test() {
			continue
		}
		for _, decl := range s.ast.Decls {
			name := ""
			if f, ok := decl.(*ast.FuncDecl); ok {
				name = f.Name.Name
			}
			eachClaim(s, decl, func(n ast.Expr, claim string, calls []string) {
				place := s.path + ":" + name
				if _, ok := mayClaim[place]; !ok {
					t.Errorf("%s: %s in %s, which is not in mayClaim", s.at(n.Pos()), claim, place)
				}
				used[place] = true
				for _, call := range calls {
					if call == "errors.Join" || call == "fmt.Errorf" || call == "append" {
						t.Errorf("%s: %s is an argument of %s: do not join or wrap an outcome", s.at(n.Pos()),
							claim, call)
					}
				}
			})
		}
	}
	for place := range mayClaim {
		if !used[place] {
			t.Errorf("%s is in mayClaim, but it claims no outcome", place)
		}
	}
}

// eachClaim calls f with each use of a name of notExecuted under root. The
// argument calls contains the functions that have this use among their
// arguments.
func eachClaim(s source, root ast.Node, f func(n ast.Expr, claim string, calls []string)) {
	var stack []ast.Node
	ast.Inspect(root, func(n ast.Node) bool {
		if n == nil {
			stack = stack[:len(stack)-1]
			return true
		}
		claim := ""
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if pkg, ok := n.X.(*ast.Ident); ok && pkg.Name == "outcome" && notExecuted["cluster/outcome"][n.Sel.Name] {
				claim = n.Sel.Name
			}
		case *ast.Ident:
			if notExecuted[s.dir()][n.Name] && !qualifies(stack, n) {
				claim = n.Name
			}
		}
		if claim != "" {
			var calls []string
			for _, above := range stack {
				if call, ok := above.(*ast.CallExpr); ok {
					calls = append(calls, callee(call))
				}
			}
			f(n.(ast.Expr), claim, calls)
		}
		stack = append(stack, n)
		return true
	})
}

// qualifies reports whether an identifier is the part of a selector after the
// dot. Such an identifier belongs to another package or to a type.
func qualifies(stack []ast.Node, n *ast.Ident) bool {
	if len(stack) == 0 {
		return false
	}
	sel, ok := stack[len(stack)-1].(*ast.SelectorExpr)
	return ok && sel.Sel == n
}

// callee returns the name of the called function as the source writes it.
func callee(call *ast.CallExpr) string {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		if x, ok := f.X.(*ast.Ident); ok {
			return x.Name + "." + f.Sel.Name
		}
		return f.Sel.Name
	}
	return ""
}
