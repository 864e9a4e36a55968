package experiment

import "context"

func qosPeers() Experiment {
	return Experiment{
		Name:     "qos-peers",
		Title:    "Control traffic under saturating UDP: one queue, queues by OpenFlow alone, tc by hand, Sluice",
		Question: "What does a class of Sluice gain over configuration by hand?",
		Run:      runQoSPeers,
	}
}

func runQoSPeers(ctx context.Context, env *Env) (*Result, error) {
	all, err := env.inControlLab(ctx, "qospeer", 4, func(ctx context.Context, r *controlRig) error {
		for _, way := range []struct {
			name  string
			setUp func() error
		}{
			{"one queue", func() error { return r.static.FIFO(ctx) }},
			{"queues and set_queue", func() error { return r.static.Queues(ctx, controlPort) }},
			{"tc by hand", func() error { return r.static.TC(ctx, controlPort) }},
		} {
			if err := way.setUp(); err != nil {
				return err
			}
			if err := r.measure(ctx, way.name, true); err != nil {
				return err
			}
		}
		return r.withClass(ctx, func() error { return r.measure(ctx, "Sluice", true) })
	})
	if err != nil {
		return nil, err
	}
	return qosPeersResult(all), nil
}

func qosPeersResult(all []*measured) *Result {
	r := &Result{Network: "three switches in a row, 10 Mbit/s at every port, Open vSwitch's userspace datapath; 20 Mbit/s of UDP beside the control traffic"}
	t := Table{Title: "Time from request to response in ms", Columns: []string{"way", "requests", "answers", "p50", "p99", "greatest", "commands by hand"}}
	commands := []string{"2 a port", "2 a port, 3 a switch", "8 a port", "1 request"}
	for i, m := range all {
		t.Add(m.name, m.sent, len(m.took), ms2(m.quantile(0.5)), ms2(m.quantile(0.99)), ms2(m.quantile(1)), commands[i])
	}
	r.Tables = append(r.Tables, t)
	queues, byHand, ours := all[1], all[2], all[3]
	r.Claim(ours.quantile(0.5) <= 1.5*byHand.quantile(0.5), "Sluice's median at most half more than that of tc written by hand", "%.2f ms, by hand %.2f ms", ours.quantile(0.5), byHand.quantile(0.5))
	r.Claim(ours.quantile(0.5) < queues.quantile(0.5)/4, "Sluice's median below a quarter of that of queues and set_queue alone", "%.2f ms, %.2f ms", ours.quantile(0.5), queues.quantile(0.5))
	r.Note("Queues by ovs-vsctl and set_queue by OpenFlow are what the QoS applications of Ryu and others configure. In the userspace datapath they have silently no effect; with the kernel's datapath they have.")
	r.Note("The commands by hand are those of one port or switch and of one kind of traffic; Sluice's request needs a controller, and beside each userspace datapath a classifier, that run. set_queue alone has no effect here, so the second claim says what that costs, not that another controller is slow.")
	r.Note("os-ken, Ryu's successor as Debian packages it, no longer contains the QoS application, so what it configures is configured here by hand.")
	return r
}
