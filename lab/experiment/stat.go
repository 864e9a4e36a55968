package experiment

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// quantile returns the q-quantile (0 to 1) of the values by linear interpolation, or NaN if there
// are none. It does not change values.
func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	at := q * float64(len(sorted)-1)
	low := int(at)
	if low == len(sorted)-1 {
		return sorted[low]
	}
	return sorted[low] + (at-float64(low))*(sorted[low+1]-sorted[low])
}

func median(values []float64) float64 { return quantile(values, 0.5) }

// mean returns the mean of the values, or NaN if there are none.
func mean(values []float64) float64 { return stat.Mean(values, nil) }

// margin returns half the width of the 95 % confidence interval of the mean by Student's
// distribution, or NaN if there are fewer than two values.
func margin(values []float64) float64 {
	if len(values) < 2 {
		return math.NaN()
	}
	n := float64(len(values))
	t := distuv.StudentsT{Sigma: 1, Nu: n - 1}.Quantile(0.975)
	return t * stat.StdErr(stat.StdDev(values, nil), n)
}

// meanColumn is the title of a column with the results of meanText.
const meanColumn = "mean, with its 95 % interval"

// meanText returns the mean of the values and its 95 % interval, each times scale, like "39.2 ±
// 1.3", or "" if there are no values.
func meanText(values []float64, scale float64, digits int) string {
	switch m := margin(values); {
	case len(values) == 0:
		return ""
	case math.IsNaN(m):
		return fmt.Sprintf("%.*f", digits, mean(values)*scale)
	default:
		return fmt.Sprintf("%.*f ± %.*f", digits, mean(values)*scale, digits, m*scale)
	}
}

// interval is a published mean with half the width of its 95 % confidence interval.
type interval struct{ mean, margin float64 }

func (i interval) String() string { return fmt.Sprintf("%v ± %v", i.mean, i.margin) }

// jain returns Jain's index of fairness of the shares: 1 if all are equal.
func jain(shares []float64) float64 {
	sum, squares := 0.0, 0.0
	for _, x := range shares {
		sum += x
		squares += x * x
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / (float64(len(shares)) * squares)
}
