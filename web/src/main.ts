import { mount } from 'svelte';
import App from './App.svelte';
import './app.css';

const { cluster = '', address = '' } = document.documentElement.dataset;
const target = document.getElementById('app');
if (target) mount(App, { target, props: { cluster, address } });
