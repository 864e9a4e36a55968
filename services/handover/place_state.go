package handover

// state is how a device is served.
type state uint8

const (
	// detached: the device has no rules.
	detached state = iota
	// expected: a visitor has rules to the place where it will be.
	expected
	// served: the device is served where it is, or was last.
	served
	// prepared: the path to a second place has its rules, but no packets go there yet.
	prepared
	// bicasting: packets also go to a second place, where the device is expected.
	bicasting
	// leaving: packets also go to the place that the device has left, for a while.
	leaving
)

var stateNames = [...]string{"detached", "expected", "served", "prepared", "bicasting", "leaving"}

func (s state) String() string { return stateNames[s] }

// step is an event that changes a device's state.
type step uint8

const (
	// stepServe: rules to a place are in the switches.
	stepServe step = iota
	// stepExpect: the place is where a visitor will be.
	stepExpect
	// stepArrive: a visitor is there, or is no longer expected.
	stepArrive
	// stepPrepare: the path to a second place has its rules.
	stepPrepare
	// stepBicast: packets go to a second place.
	stepBicast
	// stepMove: the device has gone to the second place, and the first is still served.
	stepMove
	// stepSettle: only one place is served again.
	stepSettle
	// stepRemove: the rules have been removed.
	stepRemove
)

var stepNames = [...]string{"serve", "expect", "arrive", "prepare", "bicast", "move", "settle", "remove"}

func (s step) String() string { return stepNames[s] }

// transitions holds the next state for each state and step. A step that is not listed for a state
// changes nothing.
var transitions = map[state]map[step]state{
	detached:  {stepServe: served, stepArrive: detached, stepSettle: detached, stepRemove: detached},
	expected:  {stepServe: expected, stepExpect: expected, stepArrive: served, stepSettle: served, stepRemove: detached},
	served:    {stepServe: served, stepExpect: expected, stepArrive: served, stepPrepare: prepared, stepBicast: bicasting, stepMove: leaving, stepSettle: served, stepRemove: detached},
	prepared:  {stepServe: prepared, stepArrive: prepared, stepPrepare: prepared, stepBicast: bicasting, stepMove: leaving, stepSettle: served, stepRemove: detached},
	bicasting: {stepServe: bicasting, stepArrive: bicasting, stepPrepare: prepared, stepBicast: bicasting, stepMove: leaving, stepSettle: served, stepRemove: detached},
	leaving:   {stepServe: leaving, stepArrive: leaving, stepPrepare: prepared, stepBicast: bicasting, stepMove: leaving, stepSettle: served, stepRemove: detached},
}

// advance changes the state by a step. The caller holds the lock. A step that is not listed for
// the state changes nothing.
func (m *mobile) advance(s step) {
	if next, ok := transitions[m.state][s]; ok {
		m.state = next
	}
	if m.state < prepared && m.second != nil {
		m.second.stop()
		m.second = nil
	}
}

// advanceWith changes the state by a step to one with a second place. The caller holds the lock.
func (m *mobile) advanceWith(s step, x *second) {
	if m.second != nil {
		m.second.stop()
	}
	m.second = x
	m.advance(s)
}

// hasPrepared reports whether the second place is one where the device is expected.
func (m *mobile) hasPrepared() bool { return m.state == prepared || m.state == bicasting }
