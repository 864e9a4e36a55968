package plugin

// state is how a device is served.
type state uint8

// detached: the device has no rules.
const (
	// nowhere: it has no rules.
	// expected: a visitor has rules to the place where it will be.
	detached state = iota
	// awaited: a visitor has rules to where it will be.
	// served: the device is served where it is, or was last.
	expected
	// served: it is served where it is, or was last.
	// prepared: the path to a second place has its rules, but no packets go there yet.
	served
	// laid: the way to a second place is there, but nothing goes there yet.
	// bicasting: packets also go to a second place, where the device is expected.
	prepared
	// copied: packets go to a second place, too, where the device is expected.
	// leaving: packets also go to the place that the device has left, for a while.
	bicasting
	// leaving: packets go to the place that the device has left, too, for a while.
	leaving
)

var stateNames = [...]string{"detached", "expected", "served", "prepared", "bicasting", "leaving"}

func (s state) String() string { return stateNames[s] }

// step is an event that changes a device's state.
type step uint8

// stepServe: rules to a place are in the switches.
const (
	// stepServe: rules to a place are in the switches.
	// stepExpect: the place is where a visitor will be.
	stepServe step = iota
	// stepExpect: the place is that where a visitor will be.
	// stepArrive: a visitor is there, or is no longer expected.
	stepExpect
	// stepCome: a visitor is there, or does not come any more.
	// stepPrepare: the path to a second place has its rules.
	stepArrive
	// stepLay: the way to a second place has been laid.
	// stepBicast: packets go to a second place.
	stepPrepare
	// stepCopy: packets go to a second place.
	// stepMove: the device has gone to the second place, and the first is still served.
	stepBicast
	// stepCross: the device has gone to the second place, and the first is served on.
	// stepSettle: only one place is served again.
	stepMove
	// stepSettle: one place is served alone again.
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
