package experiment

import (
	"context"
	"fmt"
	"os"
	"time"
)

// stopReader stops reading at the server while the client keeps sending, and measures how much the
// agents buffer.
func (rig *relayRig) stopReader(ctx context.Context, r *Result) error {
	rig.env.Step("a reader that stops")
	c, err := rig.openCarried(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	if _, _, err := c.Pump(ctx, time.Second); err != nil {
		return err
	}
	table := Table{Title: "A reader that stops: what the client could send on, and the agents' resident memory", Columns: []string{"after", "bytes on the way", "agent x, MB", "agent y, MB"}}
	settle, hold := 2*time.Second, pick[time.Duration](rig.env.Scale, 3, 10, 60)*time.Second
	var held [2]int64
	for i, wait := range []time.Duration{settle, hold} {
		if held[i], err = c.Push(ctx, wait); err != nil {
			return err
		}
		x, y, err := rig.memory()
		if err != nil {
			return err
		}
		table.Add(wait, held[i], fmt.Sprintf("%.1f", x), fmt.Sprintf("%.1f", y))
	}
	r.Tables = append(r.Tables, table)
	r.Claim(held[1]-held[0] <= held[0]/20, fmt.Sprintf("no more than 5 %% goes in during %v after the first %v", hold, settle), "%d bytes, then %d", held[0], held[1])
	sent, got, err := c.Drain(ctx)
	if err != nil {
		return err
	}
	r.Claim(sent == got, "every byte arrives once the reader reads on", "%d of %d", got, sent)
	return nil
}

// memory returns the resident memory of both agents in MB.
func (rig *relayRig) memory() (x, y float64, err error) {
	if x, err = residentMemory(rig.agents.Agent("x").PID()); err != nil {
		return 0, 0, err
	}
	y, err = residentMemory(rig.agents.Agent("y").PID())
	return x, y, err
}

func residentMemory(pid int) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, fmt.Errorf("memory of process %d: %w", pid, err)
	}
	var size, resident int64
	if _, err := fmt.Sscan(string(text), &size, &resident); err != nil {
		return 0, fmt.Errorf("memory of process %d: %w", pid, err)
	}
	return float64(resident*int64(os.Getpagesize())) / 1e6, nil
}
