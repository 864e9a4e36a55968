package plugin

// state is how a device is served.
type state uint8

const (
	// nowhere: it has no rules.
	nowhere state = iota
	// awaited: a visitor has rules to where it will be.
	awaited
	// served: it is served where it is, or was last.
	served
	// laid: the way to a second place is there, but nothing goes there yet.
	laid
	// copied: packets go to a second place, too, where the device is expected.
	copied
	// leaving: packets go to the place that the device has left, too, for a while.
	leaving
)

var stateNames = [...]string{"nowhere", "awaited", "served", "laid", "copied", "leaving"}

func (s state) String() string { return stateNames[s] }

// step is what happens to how a device is served.
type step uint8

const (
	// stepServe: rules to a place are in the switches.
	stepServe step = iota
	// stepExpect: the place is that where a visitor will be.
	stepExpect
	// stepCome: a visitor is there, or does not come any more.
	stepCome
	// stepLay: the way to a second place has been laid.
	stepLay
	// stepCopy: packets go to a second place.
	stepCopy
	// stepCross: the device has gone to the second place, and the first is served on.
	stepCross
	// stepSettle: one place is served alone again.
	stepSettle
	// stepRemove: the rules have been removed.
	stepRemove
)

var stepNames = [...]string{"serve", "expect", "come", "lay", "copy", "cross", "settle", "remove"}

func (s step) String() string { return stepNames[s] }

// transitions say what becomes of a state. What is not there does not happen.
var transitions = map[state]map[step]state{
	nowhere: {stepServe: served, stepCome: nowhere, stepSettle: nowhere, stepRemove: nowhere},
	awaited: {stepServe: awaited, stepExpect: awaited, stepCome: served, stepSettle: served, stepRemove: nowhere},
	served:  {stepServe: served, stepExpect: awaited, stepCome: served, stepLay: laid, stepCopy: copied, stepCross: leaving, stepSettle: served, stepRemove: nowhere},
	laid:    {stepServe: laid, stepCome: laid, stepLay: laid, stepCopy: copied, stepCross: leaving, stepSettle: served, stepRemove: nowhere},
	copied:  {stepServe: copied, stepCome: copied, stepLay: laid, stepCopy: copied, stepCross: leaving, stepSettle: served, stepRemove: nowhere},
	leaving: {stepServe: leaving, stepCome: leaving, stepLay: laid, stepCopy: copied, stepCross: leaving, stepSettle: served, stepRemove: nowhere},
}

// to takes a step. The lock is held. A step that does not happen changes nothing.
func (m *mobile) to(s step) {
	if next, ok := transitions[m.state][s]; ok {
		m.state = next
	}
	if m.state < laid && m.second != nil {
		m.second.stop()
		m.second = nil
	}
}

// hold takes a step to a state with a second place. The lock is held.
func (m *mobile) hold(s step, x *second) {
	if m.second != nil {
		m.second.stop()
	}
	m.second = x
	m.to(s)
}

// prepared says whether the second place is one where the device is expected.
func (m *mobile) prepared() bool { return m.state == laid || m.state == copied }
