package experiment

import (
	"fmt"
	"maps"
	"slices"
)

// modelResult adds tables that compare the formulas with the measurements.
func modelResult(r *Result, points []latencies, all []*modelSamples) {
	join := Table{
		Title: "A new device's connection in ms, medians: T_d = 4(T_e + c_e), T_f = max(c_i)",
		Columns: []string{
			"latencies", "discover to offer", "request to ack", "together", "formula T_d + T_f", "formula, rules confirmed",
			"controller: T_d", "T_f", "T_e",
		},
	}
	moves := Table{
		Title: "A move in ms, medians: from the device's request to its first packet at the new place",
		Columns: []string{
			"latencies", "move", "radios", "formula", "as changes are made", "measured", "p95", meanColumn, "measured - as made",
			"silence", "silence before the move", "lost", "controller: until rules are sent", "until they are confirmed",
		},
	}
	plot := Plot{Name: "model", Title: "Request to first packet at the new place", X: "model, ms", Y: "measured median, ms"}
	identity := Series{Label: "model", Published: true}
	lines := map[moveKind]*Series{}
	worst := map[int]*modelWorst{1: {}, 2: {}}
	still := map[moveKind]float64{} // excess over the model at the first point, which has no latencies
	for i, p := range points {
		s := all[i]
		addJoin(&join, p, s)
		for _, kind := range modelKinds() {
			got := s.moves[kind.moveKind]
			formula, predicted, measured := inMS(p.formula(kind.modelMove)), inMS(p.predict(kind.modelMove, kind.radios)), median(got.first)
			moves.Add(p, kind.modelMove.name, kind.radios, ms1(formula), ms1(predicted), ms1(measured), ms1(quantile(got.first, 0.95)), meanText(got.first, 1, 1), ms1(measured-predicted),
				ms1(median(got.gap)), ms1(median(got.still)), got.lost, ms1(median(got.before)), ms1(median(got.applied)))
			if lines[kind.moveKind] == nil {
				lines[kind.moveKind] = &Series{Label: fmt.Sprintf("%s, radios: %d", kind.modelMove.name, kind.radios)}
			}
			lines[kind.moveKind].Point(predicted, measured)
			identity.Point(predicted, predicted)
			if i == 0 {
				still[kind.moveKind] = measured - predicted
			}
			worst[kind.radios].see(fmt.Sprintf("%v, %s", p, kind.modelMove.name), measured-predicted, measured-predicted-still[kind.moveKind], median(got.gap)-median(got.still)-formula)
		}
	}
	plot.Series = append(plot.Series, sortedSeries(identity))
	for _, kind := range modelKinds() {
		plot.Series = append(plot.Series, sortedSeries(*lines[kind.moveKind]))
	}
	r.Tables = append(r.Tables, join, moves)
	r.Plots = append(r.Plots, plot)
	modelClaims(r, worst)
	r.Note("Formula: the published L_i, in which a rule counts when it has reached its switch; it has no term for confirmations. As changes are made: for one radio like that. A device with two radios is still served at its old place, and nothing is to be lost: the join is given its changes to hold ready while the branch makes its own, and makes them, in one step, when all have confirmed. The device hears its old place meanwhile.")
	r.Note("A new device's answer waits until the rules are confirmed, one round trip of the slowest switch, where the formula has one way.")
	r.Note("Without any latency a move takes %.1f ms more than the model: the controller's work, the switches', which for some milliseconds go on by what they remember, and this machine's own.", largest(still))
	r.Note("Silence is what the application notices. With two radios the old place is heard until the join has switched; with one it is lost from the request on. The silence before the move, watched for %v, is this machine's own.", watchedBefore)
	r.Note("T_a, the radio's own association, is nothing in this lab: the links are up all the time.")
}

// kindOfMove is a move with its number of radios.
type kindOfMove struct {
	moveKind
	modelMove modelMove
}

func modelKinds() []kindOfMove {
	var all []kindOfMove
	for _, m := range modelMoves {
		for _, radios := range []int{1, 2} {
			all = append(all, kindOfMove{moveKind{m.name, radios}, m})
		}
	}
	return all
}

func addJoin(t *Table, p latencies, s *modelSamples) {
	td := 4 * (p.radio + p.edge)
	tf := max(p.root, p.core, p.edge)
	t.Add(p, ms1(median(s.discover)), ms1(median(s.request)), ms1(median(s.total)), ms1(inMS(td+tf)), ms1(inMS(td+2*tf)),
		ms1(median(s.td)), ms1(median(s.tf)), ms1(median(s.te)))
}

// modelWorst holds the largest differences from the model, in ms.
type modelWorst struct {
	over  worstOf // above the predicted time
	grown worstOf // the same, less the excess without any latency
	gap   worstOf // gap above the formula
}

func (w *modelWorst) see(at string, over, grown, gap float64) {
	w.over.see(at, over)
	w.grown.see(at, grown)
	w.gap.see(at, gap)
}

// worstOf is the largest of several numbers, with the place where it occurred.
type worstOf struct {
	value float64
	at    string
}

func (w *worstOf) see(at string, value float64) {
	if w.at == "" || value > w.value {
		w.value, w.at = value, at
	}
}

func (w worstOf) String() string { return fmt.Sprintf("worst %+.1f ms (%s)", w.value, w.at) }

func largest(values map[moveKind]float64) float64 {
	return slices.Max(slices.Collect(maps.Values(values)))
}

func modelClaims(r *Result, worst map[int]*modelWorst) {
	for _, radios := range []int{1, 2} {
		w, who := worst[radios], fmt.Sprintf("saving, radios: %d: ", radios)
		r.Claim(w.gap.value <= inMS(modelBound), fmt.Sprintf("%smedian silence, less the machine's own, at most %v above the formula with L_i", who, modelBound), "%v", w.gap)
		r.Claim(w.grown.value <= inMS(modelBound), fmt.Sprintf("%severy latency adds to the median from request to first packet what the model of how changes are made says, at most %v more", who, modelBound), "%v", w.grown)
		r.Claim(w.over.value <= 2*inMS(modelBound), fmt.Sprintf("%smedian from request to first packet at most %v above the model of how changes are made, the work of machines included", who, 2*modelBound), "%v", w.over)
	}
}

// sortedSeries sorts a line's points by x, so that it can be drawn.
func sortedSeries(s Series) Series {
	for i := range s.X {
		for j := i; j > 0 && s.X[j] < s.X[j-1]; j-- {
			s.X[j], s.X[j-1] = s.X[j-1], s.X[j]
			s.Y[j], s.Y[j-1] = s.Y[j-1], s.Y[j]
		}
	}
	return s
}
