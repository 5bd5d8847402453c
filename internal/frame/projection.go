package frame

import "slices"

// Projection is a choice of tables and columns.
type Projection struct {
	tables [NumTables]bool
	// columns and histograms are by their indexes in Schema.
	columns, histograms [NumTables][]bool
}

// NewProjection chooses tables, and the columns and histograms of each by their names: nil is all of them. All attributes
// of a table are chosen with it. It panics where there is no such column: names are the program's own.
func NewProjection(tables map[TableID][]string) *Projection {
	p := &Projection{}
	for t, names := range tables {
		p.tables[t] = true
		p.columns[t] = make([]bool, len(Schema[t].Columns))
		p.histograms[t] = make([]bool, len(Schema[t].Histograms))
		for i, c := range Schema[t].Columns {
			p.columns[t][i] = names == nil || slices.Contains(names, c.Name)
		}
		for i, c := range Schema[t].Histograms {
			p.histograms[t][i] = names == nil || slices.Contains(names, c.Name)
		}
		for _, name := range names {
			if !slices.ContainsFunc(Schema[t].Histograms, func(c ColumnInfo) bool { return c.Name == name }) {
				Column(t, name)
			}
		}
	}
	return p
}

func (p *Projection) table(t int) bool { return p == nil || p.tables[t] }

func (p *Projection) column(t, i int) bool { return p == nil || p.columns[t][i] }

func (p *Projection) histogram(t, i int) bool { return p == nil || p.histograms[t][i] }

// HasTable reports whether a table is chosen. A nil Projection chooses all.
func (p *Projection) HasTable(t TableID) bool { return p.table(int(t)) }

// HasColumn reports whether a column of a chosen table is.
func (p *Projection) HasColumn(t TableID, i int) bool { return p.column(int(t), i) }

// HasHistogram is the same of a column of histograms.
func (p *Projection) HasHistogram(t TableID, i int) bool { return p.histogram(int(t), i) }
