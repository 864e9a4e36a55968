package network

import (
	"errors"
	"fmt"

	"github.com/sluice-net/sluice/network/ledger"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

// What a caller can test for with errors.Is.
var (
	// ErrSwitchDown: the switch is not connected, or its session ended before it answered.
	ErrSwitchDown = errors.New("switch is not connected")
	// ErrRefused: the switch answered a change with an OpenFlow error.
	ErrRefused = errors.New("refused by the switch")
	// ErrConflict: another owner, or another key, already holds the same table, priority and match.
	ErrConflict = ledger.ErrConflict
	// ErrInvalid: the program can never be installed as it stands.
	ErrInvalid = ledger.ErrInvalid
	// ErrBusy: a bound was reached; trying later may succeed.
	ErrBusy = errors.New("too much outstanding")
	// ErrUnknownHost: the host was not found by probing.
	ErrUnknownHost = errors.New("host not found")
	// ErrNoPath: the two places are not connected, or not as well as was asked for.
	ErrNoPath = topology.ErrNoPath
	// ErrIdentity: a switch claims an identifier that is not proved to be its own.
	ErrIdentity = errors.New("not entitled to this datapath identifier")
	// ErrClosed: the network is not running.
	ErrClosed = errors.New("network is not running")
)

// RuleError says which rule of a program could not be brought into which
// switch, and why. It wraps ErrRefused, ErrSwitchDown, ErrConflict or ErrInvalid.
type RuleError struct {
	Owner, Key string
	Switch     openflow.DatapathID
	// Rule is the offending rule; nil if the switch as a whole failed.
	Rule *rule.Rule
	// Reply is the switch's error message, if it sent one.
	Reply *openflow.Error
	Err   error
}

// Error names owner, key, switch, rule and the OpenFlow error.
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

// Unwrap gives the sentinel below.
func (e *RuleError) Unwrap() error { return e.Err }
