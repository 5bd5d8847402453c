import { render } from 'preact'
import { App } from './app'
import './style.css'
import { takeToken } from './token'

takeToken()
// Before the view reads the hash for its state.
addEventListener('hashchange', () => takeToken() && location.reload())

render(<App />, document.getElementById('app')!)
