package predict

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// Point is a place on a plane in metres: X east, Y north.
type Point struct{ X, Y float64 }

// finite reports whether both coordinates are finite.
func (p Point) finite() bool { return finite(p.X) && finite(p.Y) }

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// maxVertices bounds the vertices of a polygon, and maxMetres the magnitude of a coordinate. Both are
// far beyond any network of one operator. At maxMetres a float64 still resolves small fractions of a
// metre.
const (
	maxVertices = 1000
	maxMetres   = 1e7
)

// Area is a part of the plane: a circle if Radius is set, otherwise a polygon.
type Area struct {
	Centre  Point
	Radius  float64
	Polygon []Point
}

// Contains reports whether the point lies in the area.
func (a Area) Contains(p Point) bool {
	if len(a.Polygon) == 0 {
		return math.Hypot(p.X-a.Centre.X, p.Y-a.Centre.Y) <= a.Radius
	}
	inside := false
	for i, q := range a.Polygon {
		r := a.Polygon[(i+1)%len(a.Polygon)]
		if (q.Y > p.Y) != (r.Y > p.Y) && p.X < q.X+(p.Y-q.Y)/(r.Y-q.Y)*(r.X-q.X) {
			inside = !inside
		}
	}
	return inside
}

// check returns an error if the area is not valid.
func (a Area) check() error {
	if len(a.Polygon) == 0 {
		if !(a.Radius > 0) || a.Radius > maxMetres {
			return fmt.Errorf("radius %v: more than 0 and at most %v metres", a.Radius, maxMetres)
		}
		return checkPoint(a.Centre)
	}
	if a.Radius != 0 || a.Centre != (Point{}) {
		return errors.New("both a circle and a polygon are given: give one of the two")
	}
	return a.checkPolygon()
}

// checkPoint returns an error if a point is not valid.
func checkPoint(p Point) error {
	if !p.finite() || math.Abs(p.X) > maxMetres || math.Abs(p.Y) > maxMetres {
		return fmt.Errorf("point (%v, %v): finite, at most %v metres from the origin", p.X, p.Y, maxMetres)
	}
	return nil
}

// checkPolygon returns an error if the polygon is not valid.
func (a Area) checkPolygon() error {
	n := len(a.Polygon)
	if n < 3 || n > maxVertices {
		return fmt.Errorf("polygon of %d points: 3 to %d", n, maxVertices)
	}
	surface := 0.0
	for i, p := range a.Polygon {
		if err := checkPoint(p); err != nil {
			return err
		}
		q := a.Polygon[(i+1)%n]
		if p == q {
			return fmt.Errorf("polygon: point (%v, %v) twice in a row", p.X, p.Y)
		}
		surface += p.X*q.Y - q.X*p.Y
	}
	if math.Abs(surface) < 1 {
		return errors.New("polygon: it has no surface")
	}
	for i := range n {
		for j := i + 2; j < n; j++ {
			if i == 0 && j == n-1 {
				continue // adjacent sides share a point
			}
			if cross(a.Polygon[i], a.Polygon[i+1], a.Polygon[j], a.Polygon[(j+1)%n]) {
				return fmt.Errorf("polygon: its sides %d and %d cross", i+1, j+1)
			}
		}
	}
	return nil
}

// cross reports whether the open segments ab and cd cross.
func cross(a, b, c, d Point) bool {
	return side(a, b, c)*side(a, b, d) < 0 && side(c, d, a)*side(c, d, b) < 0
}

// side returns 1 or -1 for the side of the line ab on which the point p lies, or 0 on the line.
func side(a, b, p Point) float64 {
	v := (b.X-a.X)*(p.Y-a.Y) - (b.Y-a.Y)*(p.X-a.X)
	switch {
	case v > 0:
		return 1
	case v < 0:
		return -1
	}
	return 0
}

// span is a period inside an area, in seconds from now.
type span struct{ from, to float64 }

// transit returns the periods, from now on and in order, in which a point is in the area. The point is
// now at p and moves with velocity v.
func (a Area) transit(p, v Point) []span {
	if v == (Point{}) {
		if a.Contains(p) {
			return []span{{0, math.Inf(1)}}
		}
		return nil
	}
	if len(a.Polygon) == 0 {
		return a.transitCircle(p, v)
	}
	return a.transitPolygon(p, v)
}

// transitCircle is transit for a circle.
func (a Area) transitCircle(p, v Point) []span {
	x, y := p.X-a.Centre.X, p.Y-a.Centre.Y
	square := v.X*v.X + v.Y*v.Y
	half := x*v.X + y*v.Y
	d := half*half - square*(x*x+y*y-a.Radius*a.Radius)
	if d <= 0 {
		return nil
	}
	root := math.Sqrt(d)
	s := span{max(0, (-half-root)/square), (-half + root) / square}
	if s.to <= s.from {
		return nil
	}
	return []span{s}
}

// transitPolygon cuts the line of movement at every side that it meets, and checks for each piece
// whether its middle is inside. That is also correct where the line passes through a corner or
// along a side.
func (a Area) transitPolygon(p, v Point) []span {
	cuts := []float64{0}
	for i, q := range a.Polygon {
		r := a.Polygon[(i+1)%len(a.Polygon)]
		ex, ey := r.X-q.X, r.Y-q.Y
		det := v.X*ey - v.Y*ex
		if det == 0 {
			continue
		}
		t := ((q.X-p.X)*ey - (q.Y-p.Y)*ex) / det
		u := ((q.X-p.X)*v.Y - (q.Y-p.Y)*v.X) / det
		if t > 0 && u >= -1e-12 && u <= 1+1e-12 {
			cuts = append(cuts, t)
		}
	}
	slices.Sort(cuts)
	var spans []span
	for i := 1; i < len(cuts); i++ {
		from, to := cuts[i-1], cuts[i]
		middle := (from + to) / 2
		if to <= from || !a.Contains(Point{p.X + v.X*middle, p.Y + v.Y*middle}) {
			continue
		}
		if n := len(spans); n > 0 && spans[n-1].to == from {
			spans[n-1].to = to
			continue
		}
		spans = append(spans, span{from, to})
	}
	return spans
}
