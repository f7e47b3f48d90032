/** What the platform's endpoints count requests of an address by. */
export { addressBlock } from '../../../contracts/address.ts';
