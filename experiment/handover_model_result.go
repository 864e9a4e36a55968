package experiment

import "fmt"

// modelResult puts the formulas beside what was measured.
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
			"latencies", "move", "radios", "formula", "as changes are made", "measured", "p95", "measured - as made",
			"silence", "silence before the move", "lost", "rules confirmed", "controller's model of the rules",
		},
	}
	plot := Plot{Name: "model", Title: "Request to first packet at the new place", X: "model, ms", Y: "measured median, ms"}
	identity := Series{Label: "model", Published: true}
	lines := map[moveKind]*Series{}
	worst := map[int]*modelWorst{1: {}, 2: {}}
	for i, p := range points {
		s := all[i]
		addJoin(&join, p, s)
		for _, kind := range modelKinds() {
			got := s.moves[kind.moveKind]
			formula, predicted, measured := inMS(p.formula(kind.modelMove)), inMS(p.predict(kind.modelMove, kind.radios)), median(got.first)
			moves.Add(p, kind.modelMove.name, kind.radios, ms1(formula), ms1(predicted), ms1(measured), ms1(quantile(got.first, 0.95)), ms1(measured-predicted),
				ms1(median(got.gap)), ms1(median(got.still)), got.lost, ms1(median(got.applied)), ms1(median(got.model)))
			if lines[kind.moveKind] == nil {
				lines[kind.moveKind] = &Series{Label: fmt.Sprintf("%s, radios: %d", kind.modelMove.name, kind.radios)}
			}
			lines[kind.moveKind].Point(predicted, measured)
			identity.Point(predicted, predicted)
			worst[kind.radios].see(fmt.Sprintf("%v, %s", p, kind.modelMove.name), measured-predicted, median(got.gap)-median(got.still)-formula)
		}
	}
	plot.Series = append(plot.Series, sortedSeries(identity))
	for _, kind := range modelKinds() {
		plot.Series = append(plot.Series, sortedSeries(*lines[kind.moveKind]))
	}
	r.Tables = append(r.Tables, join, moves)
	r.Plots = append(r.Plots, plot)
	modelClaims(r, worst)
	r.Note("Formula: the published L_i, where a rule is written when it has reached its switch. As changes are made: every switch is first given its changes to hold ready, so that each switch changes in one step, which costs a round trip of the slowest; for a device with two radios the join then waits for the branch's second confirmation, so that no packet meets a switch without rules.")
	r.Note("Silence is what the application notices. With two radios the old place is heard until the join has switched; with one it is lost from the request on. The silence before the move, watched for %v, is this machine's own.", stillness)
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

// modelWorst remembers where the model is missed most, in ms.
type modelWorst struct {
	seen  bool
	over  float64 // above what was predicted
	at    string
	gap   float64 // silence above the formula
	gapAt string
}

func (w *modelWorst) see(at string, over, gap float64) {
	if !w.seen || over > w.over {
		w.over, w.at = over, at
	}
	if !w.seen || gap > w.gap {
		w.gap, w.gapAt = gap, at
	}
	w.seen = true
}

func modelClaims(r *Result, worst map[int]*modelWorst) {
	two := worst[2]
	r.Claim(two.gap <= inMS(modelBound), fmt.Sprintf("saving, two radios: median silence, less the machine's own, at most %v above the formula with L_i", modelBound), "worst %+.1f ms (%s)", two.gap, two.gapAt)
	for _, radios := range []int{1, 2} {
		w := worst[radios]
		r.Claim(w.over <= inMS(modelBound), fmt.Sprintf("saving, radios: %d: median from request to first packet at most %v above the model of how changes are made", radios, modelBound), "worst %+.1f ms (%s)", w.over, w.at)
	}
}

// sortedSeries orders a line's points by x, so that it can be drawn.
func sortedSeries(s Series) Series {
	for i := range s.X {
		for j := i; j > 0 && s.X[j] < s.X[j-1]; j-- {
			s.X[j], s.X[j-1] = s.X[j-1], s.X[j]
			s.Y[j], s.Y[j-1] = s.Y[j-1], s.Y[j]
		}
	}
	return s
}
