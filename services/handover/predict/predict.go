package predict

import (
	"fmt"
	"math"
	"time"

	"github.com/sluice-net/sluice/network"
)

// Motion is a report of where a device was and how it moved.
type Motion struct {
	At Point
	// Speed is in metres per second, and Heading in degrees clockwise from north.
	Speed, Heading float64
	// Accuracy is the error of the position in metres.
	Accuracy float64
	Time     time.Time
}

const (
	maxSpeed    = 400 // metres per second: a higher value is an error
	maxAccuracy = 1e4
)

// Check returns an error if the report is not plausible.
func (m Motion) Check() error {
	if err := checkPoint(m.At); err != nil {
		return fmt.Errorf("predict: %w", err)
	}
	switch {
	case !(m.Speed >= 0 && m.Speed <= maxSpeed):
		return fmt.Errorf("predict: speed %v: 0 to %v metres per second", m.Speed, maxSpeed)
	case !(m.Heading >= 0 && m.Heading <= 360):
		return fmt.Errorf("predict: heading %v: 0 to 360 degrees clockwise from north", m.Heading)
	case !(m.Accuracy >= 0 && m.Accuracy <= maxAccuracy):
		return fmt.Errorf("predict: accuracy %v: 0 to %v metres", m.Accuracy, maxAccuracy)
	case m.Time.IsZero():
		return fmt.Errorf("predict: the report says no time")
	}
	return nil
}

// velocity returns the velocity in metres per second east and north.
func (m Motion) velocity() Point {
	rad := m.Heading * math.Pi / 180
	return Point{m.Speed * math.Sin(rad), m.Speed * math.Cos(rad)}
}

// After returns where the device is after the given time if it moves on as reported.
func (m Motion) After(d time.Duration) Point {
	v, s := m.velocity(), d.Seconds()
	return Point{m.At.X + v.X*s, m.At.Y + v.Y*s}
}

// Options bounds predictions. Zero values mean the defaults.
type Options struct {
	// Horizon is how far ahead a crossing is looked for. Default 60 s.
	Horizon time.Duration
	// MaxAge is how old a report may be. Default 10 s.
	MaxAge time.Duration
	// MaxSkew is how far in the future, by our clock, a report may be. Default 1 s.
	MaxSkew time.Duration
	// MinStay is how long the device must stay in a cell for it to be prepared. Default 1 s.
	MinStay time.Duration
	// Hysteresis is how much longer the device must stay in another cell than in the one predicted
	// before, for the prediction to change. Default 3 s.
	Hysteresis time.Duration
	// Margin is added to the set-up time. Default 200 ms.
	Margin time.Duration
}

// withDefaults returns the options with defaults filled in.
func (o Options) withDefaults() Options {
	for _, d := range []struct {
		v *time.Duration
		d time.Duration
	}{
		{&o.Horizon, time.Minute},
		{&o.MaxAge, 10 * time.Second},
		{&o.MaxSkew, time.Second},
		{&o.MinStay, time.Second},
		{&o.Hysteresis, 3 * time.Second},
		{&o.Margin, 200 * time.Millisecond},
	} {
		if *d.v <= 0 {
			*d.v = d.d
		}
	}
	return o
}

// Choice is a prediction; the zero value predicts nothing.
type Choice struct {
	// Next is where the device will attach, and Name is the name of that cell.
	Next network.PortRef
	Name string
	// Enter is when the device enters the next cell, and Leave is when it leaves the present one. If
	// Enter is after Leave, there is a gap between the two cells.
	Enter, Leave time.Time
	// Stay is how long the device will be in the next cell once it has left this one.
	Stay time.Duration
	// PrepareAt is when preparing has to begin. Prepare reports whether that time has come, and
	// stays true as long as Next is the same.
	PrepareAt time.Time
	Prepare   bool
}

// None reports whether nothing is predicted.
func (c Choice) None() bool { return c.Next.IsZero() }

// Predict returns where a device that is attached at current goes next. before is the previous
// prediction for this device; setup is how long the network takes to prepare a branch, by the
// measured latencies.
func (c *Coverage) Predict(m Motion, current network.PortRef, before Choice, setup time.Duration, now time.Time, o Options) (Choice, error) {
	o = o.withDefaults()
	if err := m.Check(); err != nil {
		return Choice{}, err
	}
	age := now.Sub(m.Time)
	if age > o.MaxAge || age < -o.MaxSkew {
		return Choice{}, fmt.Errorf("predict: the report is %v old: at most %v, and not from the future", age.Round(time.Millisecond), o.MaxAge)
	}
	if setup < 0 {
		return Choice{}, fmt.Errorf("predict: set-up time %v: at least 0", setup)
	}
	track := trajectory{at: m.After(age), v: m.velocity(), horizon: o.Horizon.Seconds(), shortest: o.MinStay.Seconds()}
	best, ok := track.next(c.cells, current, before.Next, o.Hysteresis.Seconds())
	if !ok {
		return Choice{}, nil
	}
	choice := Choice{
		Next: best.cell.Place, Name: best.cell.Name,
		Enter: now.Add(seconds(best.enter)), Leave: now.Add(seconds(best.leave)), Stay: seconds(best.stay),
	}
	lead := setup + o.Margin
	if m.Speed > 0 {
		lead += min(seconds(m.Accuracy/m.Speed), o.Horizon)
	}
	choice.PrepareAt = choice.Enter.Add(-lead)
	choice.Prepare = !choice.PrepareAt.After(now) || before.Prepare && before.Next == choice.Next
	return choice, nil
}

// seconds converts a number of seconds into a duration, without overflow.
func seconds(s float64) time.Duration {
	const most = 1e9 // thirty years
	return time.Duration(min(s, most) * float64(time.Second))
}

// trajectory is a straight movement from now on, in seconds.
type trajectory struct {
	at, v             Point
	horizon, shortest float64
}

// candidate is a cell that could be next. The device enters it at enter and leaves the present cell at
// leave. After that it stays in the candidate for stay.
type candidate struct {
	cell               Cell
	enter, leave, stay float64
	covers             bool // no gap between the two cells
}

// next chooses the cell for the time when the device leaves the present one. A cell that covers the
// device at that time is better than one after a gap. Of the cells that cover the device, the one where
// it stays longest is best; of the others, the one that it reaches first. If the best cell and the cell
// predicted before both cover the device, or both do not, next keeps the one predicted before unless
// the best is better by more than the hysteresis.
func (w trajectory) next(cells []Cell, current, before network.PortRef, hysteresis float64) (candidate, bool) {
	leave := w.leaveTime(cells, current)
	if leave > w.horizon {
		return candidate{}, false
	}
	var best, kept candidate
	found, keep := false, false
	for _, cell := range cells {
		if cell.Place == current {
			continue
		}
		c, ok := w.candidate(cell, leave)
		if !ok {
			continue
		}
		if cell.Place == before {
			kept, keep = c, true
		}
		if !found || c.better(best) {
			best, found = c, true
		}
	}
	if keep && kept.covers == best.covers && kept.score() >= best.score()-hysteresis {
		return kept, true
	}
	return best, found
}

// score returns the value that hysteresis is applied to; a greater one is better. It is the stay in
// seconds if the cell covers the device when it leaves the present one. Otherwise it is the negated
// number of seconds until the device enters the cell.
func (c candidate) score() float64 {
	if c.covers {
		return c.stay
	}
	return -c.enter
}

// better reports whether c is a better next cell than o, without hysteresis.
func (c candidate) better(o candidate) bool {
	if c.covers != o.covers {
		return c.covers
	}
	return c.score() > o.score()
}

// leaveTime returns when the present cell is left; zero if there is none.
func (w trajectory) leaveTime(cells []Cell, current network.PortRef) float64 {
	for _, cell := range cells {
		if cell.Place != current {
			continue
		}
		if spans := cell.Area.transit(w.at, w.v); len(spans) > 0 && spans[0].from == 0 {
			return spans[0].to
		}
	}
	return 0
}

// candidate returns the cell as a candidate for the next one, and reports whether it can be that.
func (w trajectory) candidate(cell Cell, leave float64) (candidate, bool) {
	for _, s := range cell.Area.transit(w.at, w.v) {
		if s.to <= leave || s.from > w.horizon {
			continue
		}
		c := candidate{cell: cell, enter: s.from, leave: leave, stay: s.to - max(leave, s.from), covers: s.from <= leave}
		if c.stay >= w.shortest {
			return c, true
		}
	}
	return candidate{}, false
}
