package store

import (
	"encoding/json"
	"fmt"
)

// answerData is the data of an answer to a query.
type answerData struct {
	Type   string          `json:"resultType"`
	Result json.RawMessage `json:"result"`
}

// limited checks that an answer is one to a query, and cuts it to a number of series: older
// systems do not know the parameter.
func (r *Remote) limited(a Answer, limit int) (Answer, error) {
	var d answerData
	if err := json.Unmarshal(a.JSON, &d); err != nil {
		return Answer{}, r.badAnswer(err)
	}
	switch d.Type {
	case "scalar", "string":
		return a, nil
	case "vector", "matrix":
	default:
		return Answer{}, r.badAnswer(fmt.Errorf("result of type %q", clip(d.Type)))
	}
	var series []json.RawMessage
	if err := json.Unmarshal(d.Result, &series); err != nil || series == nil {
		return Answer{}, r.badAnswer(fmt.Errorf("a %s that is no list", d.Type))
	}
	if limit <= 0 || len(series) <= limit {
		return a, nil
	}
	result, err := json.Marshal(series[:limit])
	if err != nil {
		return Answer{}, r.badAnswer(err)
	}
	a.JSON, err = json.Marshal(answerData{d.Type, result})
	a.warn(errTruncated)
	return a, err
}
