package network

import (
	"errors"
	"fmt"

	"github.com/sluice-net/sluice/network/ledger"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

// Errors that a caller can test for with errors.Is.
var (
	// ErrSwitchDown means that the switch is not connected, or that its session ended before it
	// answered.
	ErrSwitchDown = errors.New("switch is not connected")
	// ErrRefused means that the switch answered a change with an OpenFlow error.
	ErrRefused = errors.New("refused by the switch")
	// ErrConflict means that another owner, or another key, already has the same table, priority
	// and match.
	ErrConflict = ledger.ErrConflict
	// ErrInvalid means that the program can never be installed as it is.
	ErrInvalid = ledger.ErrInvalid
	// ErrBusy means that a bound was reached; a later attempt may succeed.
	ErrBusy = errors.New("too much outstanding")
	// ErrUnknownHost means that the host was not found by probing.
	ErrUnknownHost = errors.New("host not found")
	// ErrNoPath means that the two places are not connected, or not as well as was requested.
	ErrNoPath = topology.ErrNoPath
	// ErrIdentity means that a switch claims an identifier that its certificate does not prove to
	// be its own.
	ErrIdentity = errors.New("not entitled to this datapath identifier")
	// ErrClosed means that the network is not running.
	ErrClosed = errors.New("network is not running")
)

// RuleError describes which rule of a program could not be installed on which switch, and why. It
// wraps ErrRefused, ErrSwitchDown, ErrConflict or ErrInvalid.
type RuleError struct {
	Owner, Key string
	Switch     openflow.DatapathID
	// Rule is the rule in question; nil if the switch as a whole failed.
	Rule *rule.Rule
	// Reply is the switch's error message, if it sent one.
	Reply *openflow.Error
	Err   error
}

// Error returns owner, key, switch, rule and the OpenFlow error.
func (e *RuleError) Error() string {
	s := fmt.Sprintf("%s/%s: switch %v", e.Owner, e.Key, e.Switch)
	if e.Rule != nil {
		s += fmt.Sprintf(", rule %v of stage %v at priority %d", e.Rule.Match, e.Rule.Stage, e.Rule.Priority())
	}
	s += ": " + e.Err.Error()
	if e.Reply != nil {
		s += ": " + e.Reply.String()
	}
	return s
}

// Unwrap returns the wrapped error.
func (e *RuleError) Unwrap() error { return e.Err }
