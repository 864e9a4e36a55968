package lab

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/live"
	"github.com/sluice-net/sluice/lab/delayline"
)

func TestShapingFollowsTheKernel(t *testing.T) {
	live.Test(t)
	want := ShapingDelayLine
	if netemProbe() == nil {
		want = ShapingNetem
	}
	for _, requested := range []string{"", ShapingAuto} {
		if got, err := chooseShaping(requested); got != want || err != nil {
			t.Errorf("shaping %q is %q, %v; want %q", requested, got, err, want)
		}
	}
	if got, err := chooseShaping(ShapingDelayLine); got != ShapingDelayLine || err != nil {
		t.Errorf("the delay line is always there: %q %v", got, err)
	}
	if _, err := chooseShaping(ShapingNetem); (err == nil) != (want == ShapingNetem) {
		t.Errorf("netem: %v", err)
	}
	if _, err := chooseShaping("tbf"); err == nil || !strings.Contains(err.Error(), "not one of") {
		t.Errorf("tbf: %v", err)
	}
}

func TestNetemUnits(t *testing.T) {
	a := netemAttrs(delayline.Params{
		Rate: 100e6, Delay: 25 * time.Millisecond, Jitter: time.Millisecond, Loss: 0.0005, Queue: 1514 * 100,
	})
	if a.Latency != 25000 || a.Jitter != 1000 || a.Loss != 0.05 {
		t.Errorf("%+v", a)
	}
	// 26 ms of 100 Mbit/s are 215 frames, and the queue holds 100 more.
	if a.Limit != 315 {
		t.Errorf("limit %d packets, want 315", a.Limit)
	}
}

func TestDatapathFollowsTheKernel(t *testing.T) {
	kernel := kernelDatapath()
	for _, c := range []struct {
		requested, with, without string
	}{{DatapathAuto, "system", "netdev"}, {DatapathUserspace, "netdev", "netdev"}, {DatapathKernel, "system", ""}} {
		want := c.without
		if kernel {
			want = c.with
		}
		got, err := datapathType(c.requested)
		if got != want || (err != nil) != (want == "") {
			t.Errorf("%s is %q, %v; want %q", c.requested, got, err, want)
		}
	}
}
