package predict

import (
	"errors"
	"math"
	"testing"

	"pgregory.net/rapid"
)

// haversine returns the distance on the sphere, with which the plane is compared.
func haversine(a, b Geo) float64 {
	rad := func(d float64) float64 { return d * math.Pi / 180 }
	dLat, dLon := rad(b.Lat-a.Lat), rad(b.Lon-a.Lon)
	h := math.Pow(math.Sin(dLat/2), 2) + math.Cos(rad(a.Lat))*math.Cos(rad(b.Lat))*math.Pow(math.Sin(dLon/2), 2)
	return 2 * earthRadius * math.Asin(min(1, math.Sqrt(h)))
}

func TestPlaneKeepsDistances(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		origin := Geo{rapid.Float64Range(-60, 60).Draw(t, "lat"), rapid.Float64Range(-180, 180).Draw(t, "lon")}
		plane, err := NewPlane(origin)
		if err != nil {
			t.Fatal(err)
		}
		near := Geo{origin.Lat + rapid.Float64Range(-0.1, 0.1).Draw(t, "north"), origin.Lon + rapid.Float64Range(-0.1, 0.1).Draw(t, "east")}
		if math.Abs(near.Lon) > 180 {
			near.Lon -= math.Copysign(360, near.Lon) // across the date line
		}
		p, err := plane.Point(near)
		if err != nil {
			t.Fatal(err)
		}
		want := haversine(origin, near)
		if got := math.Hypot(p.X, p.Y); math.Abs(got-want) > 0.005*want+0.01 {
			t.Fatalf("%v to %v: %v m on the plane, %v m on the sphere", origin, near, got, want)
		}
	})
}

func TestPlaneDirections(t *testing.T) {
	plane, err := NewPlane(Geo{50, 10})
	if err != nil {
		t.Fatal(err)
	}
	if p, err := plane.Point(Geo{50.01, 10}); err != nil || math.Abs(p.X) > 1e-6 || math.Abs(p.Y-1112) > 1 {
		t.Errorf("north: %v, %v", p, err)
	}
	if p, err := plane.Point(Geo{50, 10.01}); err != nil || p.X < 700 || math.Abs(p.Y) > 1e-6 {
		t.Errorf("east: %v, %v", p, err)
	}
}

func TestPlaneRefusals(t *testing.T) {
	for _, g := range []Geo{{86, 0}, {-90, 0}, {math.NaN(), 0}, {0, 181}, {0, math.Inf(-1)}} {
		if _, err := NewPlane(g); err == nil {
			t.Errorf("origin %v was taken", g)
		}
	}
	plane, err := NewPlane(Geo{50, 10})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := plane.Point(Geo{53, 10}); !errors.Is(err, ErrTooFar) {
		t.Errorf("300 km away: %v", err)
	}
	if _, err := plane.Point(Geo{math.NaN(), 10}); err == nil {
		t.Error("no number was taken for a latitude")
	}
}
